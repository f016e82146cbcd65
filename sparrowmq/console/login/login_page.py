"""The log-in page: plain HTML without any script, so strangers get no file of the console."""

from __future__ import annotations

from html import escape
from typing import Final

_STYLE: Final = """
:root { color-scheme: light dark; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; font-family: system-ui, sans-serif;
  background: light-dark(#f1f5f9, #0f172a); color: light-dark(#0f172a, #e2e8f0); }
form { width: min(20rem, 86vw); padding: 2rem; border-radius: .75rem; background: light-dark(#fff, #1e293b);
  box-shadow: 0 1px 12px #0002; display: grid; gap: .9rem; }
h1 { font-size: 1.25rem; margin: 0; } h1 small { font-weight: normal; opacity: .6; }
label { display: grid; gap: .3rem; font-size: .85rem; }
input { font: inherit; padding: .55rem .7rem; border-radius: .4rem; border: 1px solid light-dark(#cbd5e1, #475569);
  background: transparent; color: inherit; }
button { font: inherit; padding: .6rem; border: 0; border-radius: .4rem; background: #0f766e; color: #fff;
  cursor: pointer; }
p { margin: 0; color: light-dark(#b91c1c, #fca5a5); font-size: .9rem; }
"""


def page(action: str, target: str, said: str = "", name: str = "") -> str:
    """The page.

    Args:
        action: where the form goes.
        target: the path to show after the log-in.
        said: the failure of the last attempt.
    """
    alert = f'<p role="alert">{escape(said)}</p>' if said else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>SparrowMQ: log in</title><link rel="icon" href="data:,"><style>{_STYLE}</style></head>
<body><main><form method="post" action="{escape(action)}">
<h1>SparrowMQ <small>console</small></h1>{alert}
<input type="hidden" name="next" value="{escape(target)}">
<label>User<input name="name" value="{escape(name)}" autocomplete="username" autofocus required></label>
<label>Password<input name="password" type="password" autocomplete="current-password" required></label>
<button>Log in</button>
</form></main></body></html>"""


def own_path(target: str) -> str:
    """The target if it is a path on this server, else "/": a link must not lead elsewhere after the log-in."""
    is_own = target.isprintable() and target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_own else "/"
