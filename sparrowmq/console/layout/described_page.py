"""Pages described by data: what a page reads, and the parts that show it.

    Page("/topics/{name}", "Topic {name}", Description(read, (buttons(SEND, DELETE), section("Queues", ...))))

A part draws itself from what was read, and returns a function that shows newer values. Every `period_s` the page reads
again and updates its parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nicegui import ui

from sparrowmq.console.layout.tables import Columns, Link, Table
from sparrowmq.console.layout.view import View

T = TypeVar("T")
R = TypeVar("R")

Draw = Callable[[View], Awaitable[None]]
Update = Callable[[T], object]
Part = Callable[[View, T], Update[T] | None]


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Attributes:
        path: its address; {name} is a part of it, which may contain slashes if written {name:path}.
        title: may contain the parts of the address.
        icon, key: of its place in the menu; empty for a page that is not in the menu.
    """

    path: str
    title: str
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
        found = await self.read(view)
        updates = [update for part in self.parts if (update := part(view, found)) is not None]

        async def again() -> None:
            now = await (self.refresh(view, found) if self.refresh else self.read(view))
            for update in updates:
                update(now)

        if self.period_s:
            view.every(self.period_s, again)


def text(words: Callable[[T], str], mark: str = "", classes: str = "text-sm opacity-80") -> Part[T]:
    def draw(view: View, found: T) -> Update[T]:
        label = ui.label(words(found)).classes(classes).mark(mark)
        return lambda now: label.set_text(words(now))

    return draw


def charts(options_of: Callable[[T], Sequence[dict[str, Any]]], classes: str) -> Part[T]:
    """Charts in a row. ECharts is a megabyte of script: the page is there before a browser reads it."""

    def draw(view: View, found: T) -> Update[T]:
        place = ui.row().classes("w-full gap-3")
        with place:
            for _ in options_of(found):
                ui.element().classes(classes)
        shown: list[ui.echart] = []

        def fill() -> None:
            place.clear()
            with place:
                shown.extend(ui.echart(options).classes(classes) for options in options_of(found))

        def update(now: T) -> None:
            for each, options in zip(shown, options_of(now), strict=False):
                each.options.update(options)
                each.update()

        ui.timer(0.0, fill, once=True)
        return update

    return draw


def links(of: Callable[[T], Sequence[Link]]) -> Part[T]:
    """A row of links to other views."""

    def draw(view: View, found: T) -> None:
        with ui.row().classes("items-center gap-3"):
            for each in of(found):
                view.link(each.text, *each.parts, **each.query)

    return draw


def heading(title: str) -> None:
    ui.label(title).classes("text-lg")


def section(
    title: str,
    columns: Columns[R],
    rows: Callable[[T], Sequence[R]],
    empty: str = "nothing",
    *,
    wraps: bool = False,
) -> Part[T]:
    """A table below a heading."""

    def draw(view: View, found: T) -> Update[T]:
        if title:
            heading(title)
        table = Table(view, columns, rows(found), empty, wraps=wraps)
        return lambda now: table.show(rows(now))

    return draw
