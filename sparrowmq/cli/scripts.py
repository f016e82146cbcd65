"""The scripts that the package installs. Without the extra `server` they print their version, or what to install.

Nothing is imported above that comes with the extra: pip makes the scripts whether or not it was asked for.
"""

from __future__ import annotations

import os
import sys
from errno import ENOSPC
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sparrowmq.cli.servers import hangup
from sparrowmq.version import VERSION

NEEDED: Final = (
    "click",
    "h11",
    "hpack",
    "javaproperties",
    "lark",
    "numpy",
    "prometheus_client",
    "yaml",
)  # all of the extra but uvloop, which Windows has none of


def sparrowmq() -> None:
    """The script `sparrowmq`, and `smq`."""
    name = Path(sys.argv[0]).name  # the shell's completion goes by it
    if not all(map(is_text, sys.argv)):
        print(f"{name}: the command line is not UTF-8; give such a body as a --file", file=sys.stderr)
        sys.exit(2)
    try:
        _run("smq" if name == "smq" else "sparrowmq", "sparrowmq.cli.main", "main")
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # or Python reports it again at the end
        print(f"{name}: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def mqnamesrv() -> None:
    hangup.remember()  # the imports take a while
    _run("mqnamesrv", "sparrowmq.cli.servers.serve", "namesrv")


def mqbroker() -> None:
    hangup.remember()
    _run("mqbroker", "sparrowmq.cli.servers.serve", "broker")


def mqproxy() -> None:
    _run("mqproxy", "sparrowmq.cli.servers.proxy_command", "proxy")


def mqadmin() -> None:
    """The script `mqadmin`, which needs nothing of the extra but for an account (yaml)."""
    import_module("sparrowmq.cli.mqadmin.main").main()


def is_text(word: str) -> bool:
    """Return whether a word of a command line is UTF-8."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _run(script: str, module: str, command: str) -> None:
    if sys.argv[1:2] == ["--version"]:
        print(f"sparrowmq, version {VERSION}", flush=True)  # the words of click, which may be missing
        return
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(
            f"{script}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed; "
            "install the package with what its servers need: pip install 'sparrowmq[server]'",
            file=sys.stderr,
        )
        sys.exit(1)
    getattr(import_module(module), command)(prog_name=script)
