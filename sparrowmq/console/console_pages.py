"""All pages: their order in the menu, how NiceGUI serves them, and the frame and the style around each.

/          search            g then a letter     go to a page of the menu
?          the keys          d                   light or dark

NiceGUI would have each browser make the classes that it finds, by a script of 260 kB that takes a third of a second.
The few that pages use are written down here, by the names that Tailwind gives them; a test holds pages to them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from nicegui import Client, app, ui
from nicegui.client import ClientConnectionTimeout
from nicegui.events import KeyEventArguments
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sparrowmq.console.cluster_view import ClusterView
from sparrowmq.console.layout.page import Page
from sparrowmq.console.layout.trouble_panel import TroublePanel
from sparrowmq.console.layout.view import NotThere, View
from sparrowmq.console.login import forwarded_prefix
from sparrowmq.console.pages.cluster import ACCESS_PAGE, BROKER_PAGE, CLUSTER_PAGE
from sparrowmq.console.pages.dead_letters import DEAD_LETTERS_PAGE
from sparrowmq.console.pages.groups import GROUP_PAGE, GROUPS_PAGE, MEMBER_PAGE, PRODUCERS_PAGE
from sparrowmq.console.pages.live_tail import TAIL_PAGE
from sparrowmq.console.pages.messages import MESSAGE_PAGE, MESSAGES_PAGE
from sparrowmq.console.pages.overview import CONDITIONS_PAGE, OVERVIEW_PAGE
from sparrowmq.console.pages.search import SEARCH_PAGE
from sparrowmq.console.pages.servers import SERVERS_PAGE
from sparrowmq.console.pages.topics import TOPIC_PAGE, TOPICS_PAGE
from sparrowmq.console.pages.trace import TRACE_PAGE
from sparrowmq.console.samples import PERIOD_S, Samples
from sparrowmq.errors import NoGroup, NoMessage, NoRoute, SparrowError

PAGES: Final = (
    *(OVERVIEW_PAGE, CONDITIONS_PAGE, CLUSTER_PAGE, TOPICS_PAGE, GROUPS_PAGE, PRODUCERS_PAGE),
    *(MESSAGES_PAGE, TAIL_PAGE, TRACE_PAGE, DEAD_LETTERS_PAGE, ACCESS_PAGE, SERVERS_PAGE),
    # Not in the menu:
    *(BROKER_PAGE, TOPIC_PAGE, GROUP_PAGE, MESSAGE_PAGE, SEARCH_PAGE, MEMBER_PAGE),
)
_BUILD_S: Final = 30.0  # a cluster may be slow to answer
# What is read by then is part of the first answer; otherwise the frame is shown first.
_FRAME_S: Final = 0.2
# For a page of one thing: the status of the answer depends on whether the thing exists.
_OBJECT_S: Final = 5.0
_MISSING: Final = (NoRoute, NoGroup, NoMessage, NotThere)
DARK_COOKIE: Final = "sparrowmq_dark"
# A page whose socket was away while its log-in ended, or while the console started again, cannot connect any more. It
# would stay as it is, and try forever. The socket is made after this script.
_LOG_IN_AGAIN: Final = """<script>(function watch() {
  if (!window.socket) { setTimeout(watch, 50); return; }
  window.socket.on("connect_error", (error) => { if (error.description === 401) window.location.reload(); });
})();</script>"""
# White text on each of them has a contrast of 4.5 at least.
COLORS: Final = {
    "primary": "#0f766e",
    "secondary": "#475569",
    "accent": "#7c3aed",
    "positive": "#15803d",
    "negative": "#b91c1c",
    "warning": "#b45309",
}
# Below what Quasar insists on, and above what it only suggests: the layers are NiceGUI's.
_CLASSES: Final = r"""
@layer base { svg { display: block; } a { color: inherit; text-decoration: inherit; } }
/* Of what is important the first layer wins. */
@layer base {
body.body--dark :is(.q-btn--outline, .q-btn--flat).text-primary { color: #2dd4bf !important; }
body.body--dark :is(.q-btn--outline, .q-btn--flat).text-negative { color: #f87171 !important; }
body.body--dark .bg-primary { background: #0f766e !important; }
body.body--dark .bg-negative { background: #b91c1c !important; }
}
@layer utilities {
.w-full { width: 100%; } .w-64 { width: 16rem; } .w-\[32rem\] { width: 32rem; }
.max-w-full { max-width: 100%; }
.max-w-screen-xl { max-width: 80rem; } .h-64 { height: 16rem; } .h-56 { height: 14rem; } .h-72 { height: 18rem; }
.max-h-\[28rem\] { max-height: 28rem; } .overflow-auto { overflow: auto; }
.min-w-\[280px\] { min-width: 280px; }
.min-w-\[10rem\] { min-width: 10rem; } .min-w-\[14rem\] { min-width: 14rem; }
.flex { display: flex; } .inline { display: inline; } .grow { flex-grow: 1; } .basis-0 { flex-basis: 0; }
.items-center { align-items: center; } .items-end { align-items: flex-end; } .self-center { align-self: center; }
.justify-end { justify-content: flex-end; }
.gap-0 { gap: 0; } .gap-1 { gap: .25rem; } .gap-2 { gap: .5rem; } .gap-3 { gap: .75rem; } .gap-4 { gap: 1rem; }
.gap-6 { gap: 1.5rem; } .gap-x-6 { column-gap: 1.5rem; } .gap-y-1 { row-gap: .25rem; }
.p-2 { padding: .5rem; } .p-3 { padding: .75rem; } .p-4 { padding: 1rem; }
.px-2 { padding-inline: .5rem; } .px-3 { padding-inline: .75rem; } .px-4 { padding-inline: 1rem; }
.py-1 { padding-block: .25rem; } .py-2 { padding-block: .5rem; } .py-3 { padding-block: .75rem; }
.mx-auto { margin-inline: auto; }
.text-xs { font-size: .75rem; line-height: 1rem; } .text-sm { font-size: .875rem; line-height: 1.25rem; }
.text-lg { font-size: 1.125rem; line-height: 1.75rem; } .text-xl { font-size: 1.25rem; line-height: 1.75rem; }
.font-medium { font-weight: 500; } .font-semibold { font-weight: 600; }
.text-white { color: #fff; } .text-inherit { color: inherit; } .no-underline { text-decoration: none; }
.whitespace-pre { white-space: pre; } .whitespace-pre-wrap { white-space: pre-wrap; }
.opacity-70 { opacity: .7; } .opacity-80 { opacity: .8; }
.rounded { border-radius: .25rem; } .border-l-4 { border-left: 4px solid; } .border-red-600 { border-color: #dc2626; }
@media (max-width: 639px) { .max-sm\:hidden { display: none; } .max-sm\:w-36 { width: 9rem; } }
}
"""
_OURS: Final = """
a.link { color: var(--q-primary); text-decoration: none; } a.link:hover { text-decoration: underline; }
body.body--dark a.link { color: #5eead4; }
.q-table td, .q-table th { font-size: .85rem; }
.q-table--no-wrap td { max-width: 24rem; overflow: hidden; text-overflow: ellipsis; }
.q-table--dense.q-table--dense :is(td, th) { padding-inline: .75rem; }
.q-table__bottom-nodata-icon { display: none; }
@media (max-width: 600px) {
  .q-table--no-wrap td { max-width: 11.5rem; } .q-table th { white-space: normal; }
  .q-table--dense.q-table--dense :is(td, th) { padding-inline: .4rem; }
}
.trouble-critical { border-left: 4px solid #dc2626; } .trouble-warning { border-left: 4px solid #ca8a04; }
.trouble-effect { margin-left: 1.5rem; width: calc(100% - 1.5rem); }
.remedy { margin: 0; } .remedy > * { display: inline; white-space: pre-wrap; overflow-wrap: anywhere; }
.command { font-family: ui-monospace, monospace; background: rgba(128, 128, 128, .18); border: 0; color: inherit;
  border-radius: .25rem; padding: .1rem .35rem; cursor: copy; text-align: left; }
.command > * { display: inline; }
.trouble-badge { padding: 0 .5rem; border-radius: .25rem; font-size: .8rem; font-weight: 600; }
.trouble-critical .trouble-badge { background: #b91c1c; color: #fff; }
.trouble-warning .trouble-badge { background: #facc15; color: #1f2937; }
.trouble-text { color: #b91c1c; font-weight: 600; } body.body--dark .trouble-text { color: #fca5a5; }
.trouble-text:empty { display: none; }
.alarm { display: flex; gap: .25rem; padding: .1rem .5rem; border-radius: .25rem; font-weight: 600; }
.alarm.is-critical { background: #b91c1c; color: #fff; } .alarm.is-warning { background: #facc15; color: #1f2937; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.4rem, 1fr)); }
.q-table__container:not(.q-table--no-wrap) td:not(:first-child) { overflow-wrap: anywhere; }
[role=heading] { overflow-wrap: anywhere; }
.q-dialog__backdrop { z-index: auto; }
.sort, .fold, .copy { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
.sort:hover { text-decoration: underline; } .fold { width: 1.75rem; height: 1.75rem; font-size: 1rem; }
.copy { border: 1px solid currentColor; border-radius: .25rem; padding: .15rem .6rem; min-height: 1.75rem; }
.q-table .details td { max-width: 0; white-space: normal; }
.details pre { margin: .5rem 0; max-height: 24rem; overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
.only-read { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.q-btn--outline.q-btn--dense { padding-inline: .6rem; }
body.body--dark { --q-primary: #0d9488 !important; --q-negative: #f87171 !important; }
body.body--dark { color-scheme: dark; } body.body--dark .nicegui-echart canvas { filter: brightness(1.4); }
.mono { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .82rem; }
.nav-here { background: color-mix(in srgb, var(--q-primary) 16%, transparent); }
.q-header { background: #0f766e !important; }
.q-header .q-field__control { background: #ffffff22; border-radius: .4rem; }
.nicegui-content { padding: 1rem; gap: 1rem; } @media (max-width: 600px) { .nicegui-content { padding: .5rem; } }
"""
STYLE: Final = _CLASSES + _OURS


def add_pages(cluster: ClusterView, samples: Samples, prefix: str) -> None:
    for page in PAGES:
        ui.page(page.path, response_timeout=_BUILD_S)(_page_handler(page, cluster, samples, prefix))

    async def no_page(request: Request, error: Exception) -> Response:
        if request.url.path.startswith(f"{request.scope.get('root_path', '')}/_nicegui"):
            return Response("no such file\n", 404)
        with Client(ui.page(""), request=request) as client:
            view = View(request, cluster, samples, prefix)
            ui.page_title("Not found · SparrowMQ")
            with frame(view, "Not found", dark_of(request.cookies.get(DARK_COOKIE)), PAGES):
                _say_missing(view, NotThere(f"the console has no page {view.path}"))
        return client.build_response(request, 404)

    def redirect_to_overview(request: Request) -> RedirectResponse:
        """Lead from the old address of the trends to the first page, where they are now."""
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{forwarded_prefix(request.headers)}{prefix}/{query}", 301)

    app.exception_handler(404)(no_page)
    app.get("/dashboard")(redirect_to_overview)


def _page_handler(
    page: Page, cluster: ClusterView, samples: Samples, prefix: str
) -> Callable[[Request], Awaitable[Response | None]]:
    async def serve(request: Request) -> Response | None:
        view = View(request, cluster, samples, prefix)
        view.open()
        title = page.title.format_map(view.args)
        ui.page_title(f"{title} · SparrowMQ")
        with frame(view, title, dark_of(request.cookies.get(DARK_COOKIE)), PAGES):
            place = ui.column().classes("w-full gap-3")
            spinner = ui.spinner(size="lg").classes("self-center waiting")

        async def redraw() -> None:
            place.clear()
            await _draw(view, page, place)

        view.redraw = redraw
        drawing = asyncio.create_task(_draw(view, page, place))
        client = ui.context.client
        limit_s = _OBJECT_S if view.args else _FRAME_S
        try:
            is_in_time = bool((await asyncio.wait([drawing], timeout=limit_s))[0])
            if not is_in_time:
                await client.connected(timeout=_BUILD_S)
            exists = await drawing
            spinner.delete()
            if is_in_time and not exists:
                return client.build_response(request, 404)
        except ClientConnectionTimeout:
            pass  # the browser has gone
        finally:
            drawing.cancel()
        return None

    return serve


async def _draw(view: View, page: Page, place: ui.column) -> bool:
    """Draw the page's own elements, or the reason why there are none; False if its thing does not exist."""
    with place:
        try:
            await page.draw(view)
        except _MISSING as error:
            place.clear()
            _say_missing(view, error)
            return not view.args and not isinstance(error, NotThere)
        except SparrowError as error:
            with ui.card().classes("w-full border-l-4 border-red-600"):
                ui.label("The console cannot show this page").classes("font-semibold")
                ui.label(str(error)).classes("whitespace-pre-wrap").mark("error")
                ui.label("`sparrowmq doctor` finds the reason.").classes("text-sm opacity-70")
            TroublePanel(view, [trouble for trouble in view.samples.troubles.current() if trouble.is_urgent])
    return True


def _say_missing(view: View, error: SparrowError) -> None:
    with ui.card().classes("w-full border-l-4 border-red-600 gap-2"):
        ui.label("Not found").classes("font-semibold")
        ui.label(str(error)).classes("whitespace-pre-wrap").mark("error")
        ui.label("It may have been deleted, or the address has a wrong letter. Look for it here:").classes("text-sm")
        with ui.row().classes("items-center gap-3"):
            for name in sorted(view.args.values()):
                view.link(f"Search for {name[:64]}", "search", q=name)
            for page in PAGES:
                if page.path in ("/topics", "/groups", "/cluster", "/messages"):
                    view.link(page.title, page.path[1:])


def dark_of(cookie: str | None) -> bool | None:
    """The visitor's choice; None if the browser decides."""
    return {"0": False, "1": True}.get(cookie or "")


@contextmanager
def frame(view: View, title: str, dark: bool | None, pages: Sequence[Page]) -> Iterator[None]:
    """Draw the frame; the page's own elements go inside."""
    menu_pages = [page for page in pages if page.key]
    ui.add_css(STYLE)
    ui.add_body_html(_LOG_IN_AGAIN)
    ui.colors(**COLORS)
    mode = ui.dark_mode(dark)
    with ui.header().classes("items-center gap-2 py-1 px-3 no-wrap").props("elevated"):
        menu = ui.button(icon="menu").props('flat round dense color=white aria-label="Menu"')
        with (
            ui.element("a")
            .props(f'href="{view.url("")}"')
            .classes("text-white font-semibold text-lg no-underline max-sm:hidden")
        ):
            ui.label("SparrowMQ")
        ui.space()
        _alarm(view)
        search = (
            ui.input(placeholder="Search  ( / )")
            .props('dense borderless dark clearable input-class="px-2" aria-label="Search"')
            .classes("w-64 max-sm:w-36")
        )
        search.on("keydown.enter", lambda: view.go("search", q=search.value))
        ui.button(icon="dark_mode", on_click=lambda: _toggle_dark(mode, view)).props(
            'flat round dense color=white aria-label="Light or dark"'
        )
        _visitor(view)
    with (
        ui.left_drawer(value=False, bordered=True)
        .props("show-if-above width=210 breakpoint=900")
        .classes("p-2 gap-1") as drawer
    ):
        for page in menu_pages:
            _menu_entry(view, page)
    menu.on_click(drawer.toggle)
    _keys(view, menu_pages, search, _keys_dialog(menu_pages), mode)
    with ui.column().classes("w-full max-w-screen-xl mx-auto gap-3"):
        ui.label(title).classes("text-xl font-semibold").props("role=heading aria-level=1")
        yield


def _alarm(view: View) -> None:
    """A link to what is wrong; nothing while nothing is."""
    with ui.element("a").props(f'href="{view.url("conditions")}"').classes("alarm") as link:
        ui.icon("warning").classes("text-lg")
        label = ui.label()

    def show() -> None:
        troubles = [trouble for trouble in view.samples.troubles.current() if not trouble.cause]
        critical = sum(trouble.is_urgent for trouble in troubles)
        link.classes(replace="alarm is-critical" if critical else "alarm is-warning")
        link.set_visibility(bool(troubles))
        link.props["aria-label"] = f"{critical} critical conditions, {len(troubles) - critical} warnings"
        label.text = f"{critical or len(troubles)}"

    show()
    view.every(PERIOD_S, show)


def _menu_entry(view: View, page: Page) -> None:
    path = page.path.strip("/")
    is_here = view.path.strip("/").partition("/")[0] == path
    with (
        ui.element("a")
        .props(f'href="{view.url(path)}"' + (' aria-current="page"' if is_here else ""))
        .classes("flex items-center gap-3 px-3 py-2 rounded no-underline text-inherit w-full" + (" nav-here" * is_here))
    ):
        ui.icon(page.icon).classes("text-lg opacity-70")
        ui.label(page.title)


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


def _toggle_dark(mode: ui.dark_mode, view: View) -> None:
    mode.value = not mode.value
    cookie = f"{DARK_COOKIE}={int(bool(mode.value))}; path={view.url('')}; max-age=31536000; samesite=lax"
    view.run(f"document.cookie = {json.dumps(cookie)}")


def _keys_dialog(menu_pages: Sequence[Page]) -> ui.dialog:
    with ui.dialog().props('aria-label="Keys"') as dialog, ui.card():
        ui.label("Keys").classes("text-lg font-semibold")
        with ui.grid(columns="auto auto").classes("gap-x-6 gap-y-1"):
            rows = [("/", "search"), ("d", "light or dark"), ("?", "this list")]
            for keys, meaning in rows + [(f"g {page.key}", page.title) for page in menu_pages]:
                ui.label(keys).classes("mono")
                ui.label(meaning)
    return dialog


def _keys(view: View, menu_pages: Sequence[Page], search: ui.input, help_: ui.dialog, mode: ui.dark_mode) -> None:
    """Keys work where nothing is being typed."""
    targets = {page.key: page.path.strip("/") for page in menu_pages}
    is_going = False

    def on_key(event: KeyEventArguments) -> None:
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
            _toggle_dark(mode, view)
        is_going = key == "g" and not is_going

    ui.keyboard(on_key=on_key)
