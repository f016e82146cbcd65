"""The frame around every page: search, menu, light or dark, log-out, and keys.

/          search            g then a letter     go to a page of the menu
?          the keys          d                   light or dark
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from nicegui import ui
from nicegui.events import KeyEventArguments

from sparrowmq.console.history.samples import PERIOD_S
from sparrowmq.console.layout.described_page import Page
from sparrowmq.console.layout.page_style import COLORS, STYLE
from sparrowmq.console.layout.view import View

DARK_COOKIE: Final = "sparrowmq_dark"
# A page whose socket was away while its log-in ended, or while the console started again, cannot connect any more. It
# would stay as it is, and try forever. The socket is made after this script.
_LOG_IN_AGAIN: Final = """<script>(function watch() {
  if (!window.socket) { setTimeout(watch, 50); return; }
  window.socket.on("connect_error", (error) => { if (error.description === 401) window.location.reload(); });
})();</script>"""


@contextmanager
def frame(view: View, title: str, dark: bool | None, pages: Sequence[Page]) -> Iterator[None]:
    """Draw the frame; the page's own elements go inside."""
    places = [page for page in pages if page.key]
    ui.add_css(STYLE)
    ui.add_body_html(_LOG_IN_AGAIN)
    ui.colors(**COLORS)
    mode = ui.dark_mode(dark)
    with ui.header().classes("items-center gap-2 py-1 px-3 no-wrap").props("elevated"):
        menu = ui.button(icon="menu").props('flat round dense color=white aria-label="Menu"')
        _anchor(view, "SparrowMQ", "text-white font-semibold text-lg no-underline max-sm:hidden")
        ui.space()
        _alarm(view)
        search = _search(view)
        ui.button(icon="dark_mode", on_click=lambda: _turn(mode, view)).props(
            'flat round dense color=white aria-label="Light or dark"'
        )
        _visitor(view)
    with (
        ui.left_drawer(value=False, bordered=True)
        .props("show-if-above width=210 breakpoint=900")
        .classes("p-2 gap-1") as drawer
    ):
        for page in places:
            _place(view, page)
    menu.on_click(drawer.toggle)
    help_ = _keys_dialog(places)
    _keys(view, places, search, help_, mode)
    with ui.column().classes("w-full max-w-screen-xl mx-auto gap-3"):
        ui.label(title).classes("text-xl font-semibold").props("role=heading aria-level=1")
        yield


def _anchor(view: View, text: str, classes: str) -> None:
    with ui.element("a").props(f'href="{view.url("")}"').classes(classes):
        ui.label(text)


def _alarm(view: View) -> None:
    """A link to what is wrong; nothing while nothing is."""
    with ui.element("a").props(f'href="{view.url("conditions")}"').classes("alarm") as link:
        ui.icon("warning").classes("text-lg")
        label = ui.label()

    def show() -> None:
        found = [each for each in view.samples.troubles.now() if not each.cause]
        critical = sum(each.is_urgent for each in found)
        link.classes(replace="alarm is-critical" if critical else "alarm is-warning")
        link.set_visibility(bool(found))
        link.props["aria-label"] = f"{critical} critical conditions, {len(found) - critical} warnings"
        label.text = f"{critical or len(found)}"

    show()
    view.every(PERIOD_S, show)


def _place(view: View, page: Page) -> None:
    path = page.path.strip("/")
    is_here = view.path.strip("/").partition("/")[0] == path
    with (
        ui.element("a")
        .props(f'href="{view.url(path)}"' + (' aria-current="page"' if is_here else ""))
        .classes(
            "flex items-center gap-3 px-3 py-2 rounded no-underline text-inherit w-full"
            + (" nav-here" * is_here)
        )
    ):
        ui.icon(page.icon).classes("text-lg opacity-70")
        ui.label(page.title)


def _search(view: View) -> ui.input:
    search = (
        ui.input(placeholder="Search  ( / )")
        .props('dense borderless dark clearable input-class="px-2" aria-label="Search"')
        .classes("w-64 max-sm:w-36")
    )
    search.on("keydown.enter", lambda: view.go("search", q=search.value))
    return search


def _visitor(view: View) -> None:
    session = view.session
    with (
        ui.button(icon="account_circle").props('flat round dense color=white aria-label="Account"'),
        ui.menu(),
        ui.column().classes("p-4 gap-2"),
    ):
        ui.label(session.name).classes("font-semibold")
        ui.label(f"may {session.role.name.lower()}").classes("text-sm opacity-70")
        # A form, because the log-out needs a POST.
        with ui.element("form").props(f'method=post action="{view.url("logout")}"'):
            ui.button("Log out", icon="logout").props("outline dense type=submit")


def _turn(mode: ui.dark_mode, view: View) -> None:
    mode.value = not mode.value
    cookie = f"{DARK_COOKIE}={int(bool(mode.value))}; path={view.url('')}; max-age=31536000; samesite=lax"
    view.run(f"document.cookie = {json.dumps(cookie)}")


def _keys_dialog(places: Sequence[Page]) -> ui.dialog:
    with ui.dialog().props('aria-label="Keys"') as dialog, ui.card():
        ui.label("Keys").classes("text-lg font-semibold")
        with ui.grid(columns="auto auto").classes("gap-x-6 gap-y-1"):
            rows = [("/", "search"), ("d", "light or dark"), ("?", "this list")]
            for keys, what in rows + [(f"g {page.key}", page.title) for page in places]:
                ui.label(keys).classes("mono")
                ui.label(what)
    return dialog


def _keys(view: View, places: Sequence[Page], search: ui.input, help_: ui.dialog, mode: ui.dark_mode) -> None:
    """Keys work where nothing is being typed."""
    targets = {page.key: page.path.strip("/") for page in places}
    is_going = False

    def pressed(event: KeyEventArguments) -> None:
        nonlocal is_going
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.meta or event.modifiers.alt:
            return
        key = event.key.name
        if is_going and key in targets:
            view.go(targets[key])
        elif key == "/":
            search.run_method("focus")
        elif key == "?":
            help_.open()
        elif key == "d" and not is_going:
            _turn(mode, view)
        is_going = key == "g" and not is_going

    ui.keyboard(on_key=pressed)
