"""A table that stays small in the browser: rows are made for one page of fifty at a time, and filtered here.

The filter and the page stand in the address. A cell is a text, a link or a badge; whatever it says is shown as text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nicegui import ui

from sparrowmq.console.layout.view import View

PAGE: Final = 50

_CELL: Final = """
<q-td :props="props" :class="props.col.classes">
  <a v-if="props.value && props.value.href" :href="props.value.href" class="link">{{ props.value.text }}</a>
  <svg v-else-if="props.value && props.value.points" width="120" height="24" role="img" aria-label="the last hour">
    <polyline :points="props.value.points" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>
  <q-badge v-else-if="props.value && props.value.color" :color="props.value.color" :label="props.value.text"/>
  <span v-else :title="props.value">{{ props.value }}</span>
</q-td>
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        is_number: stands at the right.
        is_wide: not shown on a phone.
    """

    name: str
    label: str
    is_number: bool = False
    is_wide: bool = False

    def as_quasar(self) -> dict[str, Any]:
        shown = "max-sm:hidden" if self.is_wide else ""
        align = "right" if self.is_number else "left"
        return {
            "name": self.name,
            "label": self.label,
            "field": self.name,
            "align": align,
            "classes": shown,
            "headerClasses": shown,
        }


Row = dict[str, Any]


def link(text: object, href: str) -> dict[str, str]:
    """A cell that leads somewhere."""
    return {"text": str(text), "href": href}


def badge(text: str, color: str) -> dict[str, str]:
    """A cell that says how something is."""
    return {"text": text, "color": color}


def sparkline(values: Sequence[float], width: int = 120, height: int = 24) -> dict[str, str] | str:
    """A small line of values; nothing for fewer than two."""
    if len(values) < 2:
        return ""
    most = max(*values, 1e-9)
    step = width / (len(values) - 1)
    points = " ".join(
        f"{at * step:.1f},{height - 1 - value / most * (height - 2):.1f}" for at, value in enumerate(values)
    )
    return {"points": points}


def table(
    columns: Sequence[Column], rows: Sequence[Row], empty: str = "nothing", *, wraps: bool = False
) -> ui.table:
    """A plain table with all rows at once; what is long is cut, or broken into lines if it `wraps`."""
    shown = ui.table(
        columns=[each.as_quasar() for each in columns],
        rows=[{"id": number, **row} for number, row in enumerate(rows)],
        row_key="id",
        pagination=0,
    ).classes("w-full")
    shown.props("flat bordered dense hide-pagination" + (" wrap-cells" if wraps else ""))
    shown.props["no-data-label"] = empty
    for each in columns:
        shown.add_slot(f"body-cell-{each.name}", _CELL)
    return shown


class Listing:
    """A filter, a table and the pages of it.

    Args:
        names: all that there is, by name; asked again at each change.
        rows: the rows of some names.
        key: of the filter in the address; that of the page is `page`.
    """

    def __init__(
        self,
        view: View,
        columns: Sequence[Column],
        names: Callable[[], Awaitable[Sequence[str]]],
        rows: Callable[[Sequence[str]], Awaitable[list[Row]]],
        empty: str,
    ) -> None:
        self._view = view
        self._columns = columns
        self._names = names
        self._rows = rows
        self._empty = empty

    async def draw(self, *extra: Callable[[], object]) -> None:
        """Show it; `extra` draws what stands beside the filter."""
        with ui.row().classes("items-center gap-3 w-full"):
            self._filter = ui.input(
                placeholder="Filter", value=self._view.query.get("filter", ""), on_change=self._filtered
            ).props('dense outlined clearable debounce=250 aria-label="Filter"')
            self._count = ui.label().classes("text-sm opacity-70")
            ui.space()
            for each in extra:
                each()
        self._table = table(self._columns, [], self._empty)
        self._pages = ui.pagination(1, 1, direction_links=True, value=self._view.number("page", 1))
        self._pages.props("max-pages=7").on_value_change(self._turned)
        await self.refresh()

    async def refresh(self) -> None:
        """Ask again, and show it."""
        found = chosen(await self._names(), self._filter.value or "")
        last = max(1, -(-len(found) // PAGE))
        self._pages.max = last
        self._pages.set_visibility(last > 1)
        page = min(max(1, self._view.number("page", 1)), last)
        rows = await self._rows(found[(page - 1) * PAGE : page * PAGE])
        self._table.rows = [{"id": number, **row} for number, row in enumerate(rows)]
        self._table.update()
        self._count.text = f"{len(found):,}"

    async def _filtered(self) -> None:
        self._view.remember(filter=self._filter.value, page=None)
        self._pages.value = 1
        await self._view.attempt(self.refresh())

    async def _turned(self) -> None:
        page = int(self._pages.value or 1)
        if page != self._view.number("page", 1):
            self._view.remember(page=page if page > 1 else None)
            await self._view.attempt(self.refresh())


def chosen(names: Sequence[str], wanted: str) -> list[str]:
    """The names that have all words of a filter in them, whatever their case."""
    words = wanted.lower().split()
    return [name for name in names if all(word in name.lower() for word in words)]
