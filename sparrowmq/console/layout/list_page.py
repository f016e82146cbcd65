"""A page with a long list: it makes rows for 50 names at a time, so the browser's table stays small.

The filter, the check boxes, the order and the page number are in the address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from nicegui import ui

from sparrowmq.console.layout.tables import Columns, Order, Table, chosen
from sparrowmq.console.layout.view import View

S = TypeVar("S")
R = TypeVar("R")
PAGE: Final = 50


@dataclass(frozen=True, slots=True)
class Boxes:
    """Check boxes above the list; `key` names the ticked ones in the address."""

    key: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ticked: str = ""

    def of(self, view: View) -> list[str]:
        """The boxes that an address ticks."""
        return [each for each in view.query.get(self.key, self.ticked).split(",") if each in self.labels]


@dataclass(frozen=True)
class ListPage(Generic[S, R]):
    """The page.

    Attributes:
        read: everything by name, given the ticked boxes.
        rows: the rows of some names; those of one page, or of all names that are sorted by a column.
        beside: draws the button beside the filter.
        period_s: how often the list is refreshed; 0 is never.
    """

    columns: Columns[R]
    read: Callable[[View, Collection[str]], Awaitable[Mapping[str, S]]]
    rows: Callable[[View, Mapping[str, S]], Awaitable[Sequence[R]]]
    empty: str
    boxes: Boxes = Boxes()
    beside: Callable[[View], object] = lambda view: None
    period_s: float = 0.0

    async def __call__(self, view: View) -> None:
        shown = _Shown(self, view)
        shown.draw()
        await shown.refresh()
        if self.period_s:
            view.every(self.period_s, shown.refresh)


class _Shown(Generic[S, R]):
    def __init__(self, page: ListPage[S, R], view: View) -> None:
        self._page = page
        self._view = view
        self._ticked = page.boxes.of(view)

    def draw(self) -> None:
        with ui.row().classes("items-center gap-3 w-full"):
            self._filter = ui.input(
                placeholder="Filter", value=self._view.query.get("filter", ""), on_change=self._filtered
            ).props('dense outlined clearable debounce=250 aria-label="Filter"')
            self._count = ui.label().classes("text-sm opacity-70")
            ui.space()
            with ui.row().classes("gap-3"):
                for name, label in self._page.boxes.labels.items():
                    box = ui.checkbox(label, value=name in self._ticked).props("dense")
                    box.on_value_change(lambda event, name=name: self._tick(name, event.value))
            self._page.beside(self._view)
        self._table = Table(self._view, self._page.columns, empty=self._page.empty, on_order=self._ordered)
        label, is_descending = self._view.query.get("sort", ""), self._view.query.get("order") == "down"
        if any(each.label == label and each.is_sorted for each in self._page.columns):
            self._table.order = Order(label, is_descending)
        self._pages = ui.pagination(1, 1, direction_links=True, value=self._view.number("page", 1))
        self._pages.props("max-pages=7").on_value_change(self._turned)

    async def refresh(self) -> None:
        """Read the list again, and show it."""
        everything = await self._page.read(self._view, self._ticked)
        found = chosen(list(everything), self._filter.value or "")
        last = max(1, -(-len(found) // PAGE))
        self._pages.max = last
        self._pages.set_visibility(last > 1)
        page = min(max(1, self._view.number("page", 1)), last)
        shown = slice((page - 1) * PAGE, page * PAGE)
        if self._table.order.label:
            rows = await self._page.rows(self._view, {name: everything[name] for name in found})
            rows = self._table.order.of(self._page.columns, rows)[shown]
        else:
            rows = await self._page.rows(self._view, {name: everything[name] for name in found[shown]})
        self._table.show(rows)
        self._count.text = f"{len(found):,}"

    async def _ordered(self) -> None:
        order = self._table.order
        down = "down" if order.is_descending else None
        self._view.remember(sort=order.label, order=down, page=None)
        self._pages.value = 1
        await self._view.attempt(self.refresh())

    async def _tick(self, name: str, is_on: bool) -> None:
        self._ticked = [each for each in self._ticked if each != name] + [name] * is_on
        self._view.remember(**{self._page.boxes.key: ",".join(self._ticked), "page": None})
        await self._view.attempt(self.refresh())

    async def _filtered(self) -> None:
        self._view.remember(filter=self._filter.value, page=None)
        self._pages.value = 1
        await self._view.attempt(self.refresh())

    async def _turned(self) -> None:
        page = int(self._pages.value or 1)
        if page != self._view.number("page", 1):
            self._view.remember(page=page if page > 1 else None)
            await self._view.attempt(self.refresh())
