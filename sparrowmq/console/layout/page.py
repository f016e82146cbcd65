"""Pages described by data: what a page reads, and the parts that show it; or a long list.

    Page("/topics/{name}", "Topic {name}", Description(read, (buttons(SEND, DELETE), section("Queues", ...))))

A part draws itself from what was read, and returns a function that shows newer values. Every `period_s` the page reads
again and updates its parts. A long list has rows for 50 names at a time, so the browser's table stays small. Its
filter, check boxes, order and page number are in the address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from nicegui import ui

from sparrowmq.console.layout.tables import Columns, Link, Order, Table, filter_names
from sparrowmq.console.layout.view import View

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")
Draw = Callable[[View], Awaitable[None]]
Update = Callable[[T], object]
Part = Callable[[View, T], Update[T] | None]
ROWS_PER_PAGE: Final = 50


@dataclass(frozen=True, slots=True)
class Boxes:
    """Check boxes above the list; `key` names the ticked ones in the address."""

    key: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ticked: str = ""

    def ticked_in(self, view: View) -> list[str]:
        """The boxes that an address ticks."""
        return [name for name in view.query.get(self.key, self.ticked).split(",") if name in self.labels]


@dataclass(frozen=True)
class ListPage(Generic[S, R]):
    columns: Columns[R]
    read: Callable[[View, Collection[str]], Awaitable[Mapping[str, S]]]  # everything by name, given the ticked boxes
    # The rows of some names: those of one page, or of all names that are sorted by a column.
    rows: Callable[[View, Mapping[str, S]], Awaitable[Sequence[R]]]
    empty: str
    boxes: Boxes = Boxes()
    draw_beside: Callable[[View], object] = lambda view: None
    period_s: float = 0.0

    async def __call__(self, view: View) -> None:
        drawn = _DrawnList(self, view)
        drawn.draw()
        await drawn.refresh()
        if self.period_s:
            view.every(self.period_s, drawn.refresh)


class _DrawnList(Generic[S, R]):
    def __init__(self, page: ListPage[S, R], view: View) -> None:
        self._page = page
        self._view = view
        self._ticked = page.boxes.ticked_in(view)

    def draw(self) -> None:
        with ui.row().classes("items-center gap-3 w-full"):
            self._filter = ui.input(
                placeholder="Filter", value=self._view.query.get("filter", ""), on_change=self._on_filter
            ).props('dense outlined clearable debounce=250 aria-label="Filter"')
            self._count = ui.label().classes("text-sm opacity-70")
            ui.space()
            with ui.row().classes("gap-3"):
                for name, label in self._page.boxes.labels.items():
                    box = ui.checkbox(label, value=name in self._ticked).props("dense")
                    box.on_value_change(lambda event, name=name: self._tick(name, event.value))
            self._page.draw_beside(self._view)
        self._table = Table(self._view, self._page.columns, empty=self._page.empty, on_order=self._on_order)
        label, is_descending = self._view.query.get("sort", ""), self._view.query.get("order") == "down"
        if any(column.label == label and column.is_sorted for column in self._page.columns):
            self._table.order = Order(label, is_descending)
        self._pages = ui.pagination(1, 1, direction_links=True, value=self._view.number("page", 1))
        self._pages.props("max-pages=7").on_value_change(self._on_page)

    async def refresh(self) -> None:
        everything = await self._page.read(self._view, self._ticked)
        names = filter_names(list(everything), self._filter.value or "")
        last_page = max(1, -(-len(names) // ROWS_PER_PAGE))
        self._pages.max = last_page
        self._pages.set_visibility(last_page > 1)
        page = min(max(1, self._view.number("page", 1)), last_page)
        page_slice = slice((page - 1) * ROWS_PER_PAGE, page * ROWS_PER_PAGE)
        if self._table.order.label:
            rows = await self._page.rows(self._view, {name: everything[name] for name in names})
            rows = self._table.order.sort(self._page.columns, rows)[page_slice]
        else:
            rows = await self._page.rows(self._view, {name: everything[name] for name in names[page_slice]})
        self._table.show(rows)
        self._count.text = f"{len(names):,}"

    async def _on_order(self) -> None:
        order = self._table.order
        self._view.remember(sort=order.label, order="down" if order.is_descending else None, page=None)
        self._pages.value = 1
        await self._view.attempt(self.refresh())

    async def _tick(self, name: str, is_on: bool) -> None:
        self._ticked = [ticked for ticked in self._ticked if ticked != name] + [name] * is_on
        self._view.remember(**{self._page.boxes.key: ",".join(self._ticked), "page": None})
        await self._view.attempt(self.refresh())

    async def _on_filter(self) -> None:
        self._view.remember(filter=self._filter.value, page=None)
        self._pages.value = 1
        await self._view.attempt(self.refresh())

    async def _on_page(self) -> None:
        page = int(self._pages.value or 1)
        if page != self._view.number("page", 1):
            self._view.remember(page=page if page > 1 else None)
            await self._view.attempt(self.refresh())


@dataclass(frozen=True, slots=True)
class Page:
    """A page; without a key it is not in the menu."""

    path: str  # its address; {name} is a part of it, which may contain slashes if written {name:path}
    title: str  # may contain the parts of the address
    draw: Draw
    icon: str = ""
    key: str = ""


@dataclass(frozen=True)
class Description(Generic[T]):
    """Draws a page from what it reads."""

    read: Callable[[View], Awaitable[T]]
    parts: Sequence[Part[T]]
    period_s: float = 0.0  # how often the page reads again; 0 is never
    refresh: Callable[[View, T], Awaitable[T]] | None = None  # reads again at less cost than `read`

    async def __call__(self, view: View) -> None:
        data = await self.read(view)
        updates = [update for part in self.parts if (update := part(view, data)) is not None]

        async def refresh() -> None:
            now = await (self.refresh(view, data) if self.refresh else self.read(view))
            for update in updates:
                update(now)

        if self.period_s:
            view.every(self.period_s, refresh)


def text_part(words: Callable[[T], str], mark: str = "", classes: str = "text-sm opacity-80") -> Part[T]:
    def draw(view: View, data: T) -> Update[T]:
        label = ui.label(words(data)).classes(classes).mark(mark)
        return lambda now: label.set_text(words(now))

    return draw


def charts_part(options_of: Callable[[T], Sequence[dict[str, Any]]], classes: str) -> Part[T]:
    """Charts in a row. ECharts is a megabyte of script: the page is there before a browser reads it."""

    def draw(view: View, data: T) -> Update[T]:
        place = ui.row().classes("w-full gap-3")
        with place:
            for _ in options_of(data):
                ui.element().classes(classes)
        drawn: list[ui.echart] = []

        def fill() -> None:
            place.clear()
            with place:
                drawn.extend(ui.echart(options).classes(classes) for options in options_of(data))

        def update(now: T) -> None:
            for chart, options in zip(drawn, options_of(now), strict=False):
                chart.options.update(options)
                chart.update()

        ui.timer(0.0, fill, once=True)
        return update

    return draw


def links_part(of: Callable[[T], Sequence[Link]]) -> Part[T]:
    def draw(view: View, data: T) -> None:
        with ui.row().classes("items-center gap-3"):
            for link in of(data):
                view.link(link.text, *link.parts, **link.query)

    return draw


def heading(title: str) -> None:
    ui.label(title).classes("text-lg")


def table_part(
    title: str, columns: Columns[R], rows: Callable[[T], Sequence[R]], empty: str = "nothing", *, wraps: bool = False
) -> Part[T]:
    def draw(view: View, data: T) -> Update[T]:
        if title:
            heading(title)
        table = Table(view, columns, rows(data), empty, wraps=wraps)
        return lambda now: table.show(rows(now))

    return draw
