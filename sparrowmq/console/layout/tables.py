"""The one table of all pages: its columns are data, and it shows rows of any kind.

A cell is a text, a number, an amount, a time, a link, a badge or a small line. The browser shows each as text, never as
HTML. A click on a heading sorts the rows: here, so a list of many pages is sorted as a whole. A row may have details,
which unfold below it and are sent when a visitor unfolds them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from nicegui import ui

from sparrowmq.console.layout.view import View

R = TypeVar("R")

_HEADING: Final = """
<q-th :props="props" :aria-sort="props.col.order">
  <button v-if="props.col.is_sorted" type="button" class="sort" @click="$parent.$emit('order', props.col.name)">
    {{ props.col.label }}<span aria-hidden="true">{{ {ascending: " ▲", descending: " ▼"}[props.col.order] }}</span>
  </button>
  <span v-else :class="{'only-read': props.col.is_fold}">{{ props.col.label }}</span>
</q-th>
"""
_ROW: Final = """
<q-tr :props="props">
  <q-td v-if="'selected' in props && props.row.may_tick" auto-width>
    <q-checkbox dense v-model="props.selected" :aria-label="'Select row ' + (props.rowIndex + 1)"/></q-td>
  <q-td v-for="col in props.cols" :key="col.name" :props="props">
    <button v-if="col.is_fold" type="button" class="fold" :aria-expanded="!!props.row.details"
      :aria-label="'Details of row ' + (props.rowIndex + 1)" @click="$parent.$emit('fold', props.row.id)"
      >{{ props.row.details ? "▾" : "▸" }}</button>
    <a v-else-if="col.value && col.value.href" :href="col.value.href" class="link">{{ col.value.text }}</a>
    <svg v-else-if="col.value && col.value.points" width="120" height="24" role="img" aria-label="the last hour">
      <polyline :points="col.value.points" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>
    <q-badge v-else-if="col.value && col.value.color" :color="col.value.color" :label="col.value.text"/>
    <span v-else :title="col.value">{{ col.value }}</span>
  </q-td>
</q-tr>
<q-tr v-if="props.row.details" class="details">
  <q-td colspan="100%">
    <div class="flex items-center gap-2">
      <button v-for="name in props.row.details.copied" type="button" class="copy"
        @click="$parent.$emit('copy', [props.row.id, name])">Copy {{ name }}</button>
      <a v-if="props.row.details.href" :href="props.row.details.href" class="link">{{ props.row.details.more }}</a>
    </div>
    <pre class="mono" tabindex="0">{{ props.row.details.text }}</pre>
  </q-td>
</q-tr>
"""
_FOLD_COLUMN: Final = "fold"
_MAX_CELL_LENGTH: Final = 500  # characters of a cell; keys and tags of a message may have 32 KiB


@dataclass(frozen=True, slots=True)
class Link:
    """A cell that leads to another view; `parts` and `query` are the arguments of `View.url`."""

    text: str
    parts: tuple[str, ...]
    query: Mapping[str, object]


def link(text: object, *parts: str, **query: object) -> Link:
    """A link as `View.url` takes its address: link("orders", "topics", "orders")."""
    return Link(str(text), parts, query)


@dataclass(frozen=True, slots=True)
class Badge:
    """A cell that shows a state in a colour of Quasar's."""

    text: str
    color: str


UP: Final = Badge("up", "green-9")
NO_ANSWER: Final = Badge("no answer", "red-9")


@dataclass(frozen=True, slots=True)
class Amount:
    """A cell with a text of its own that is sorted by its value: 2 min, 1.5 MB."""

    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A small line of values; empty for fewer than two."""

    values: Sequence[float]

    def points(self, width: int = 120, height: int = 24) -> str:
        if len(self.values) < 2:
            return ""
        greatest = max(*self.values, 1e-9)
        step = width / (len(self.values) - 1)
        heights = [height - 1 - value / greatest * (height - 2) for value in self.values]
        return " ".join(f"{index * step:.1f},{y:.1f}" for index, y in enumerate(heights))


Cell = str | int | float | datetime | Link | Badge | Amount | Sparkline | None


@dataclass(frozen=True)
class Column(Generic[R]):
    label: str
    cell: Callable[[R], Cell]  # the column's value in a row
    is_number: bool = False  # aligned right, and the greatest comes first when it is sorted
    is_wide: bool = False  # hidden on a phone
    is_sorted: bool = True  # a click on its heading sorts the rows

    def as_quasar(self, name: str) -> dict[str, Any]:
        classes = "max-sm:hidden" if self.is_wide else ""
        return {
            "name": name,
            "label": self.label,
            "field": name,
            "align": "right" if self.is_number else "left",
            "classes": classes,
            "headerClasses": classes,
            "is_sorted": self.is_sorted,
        }


Columns = Sequence[Column[R]]


@dataclass(frozen=True, slots=True)
class Details:
    """The part of a row that unfolds."""

    text: str  # is shown
    copied: Mapping[str, str] = field(default_factory=dict)  # texts that buttons copy, by name
    link: Link | None = None  # a link to all of it


@dataclass(frozen=True)
class Folding(Generic[R]):
    """Rows with details; the identity keeps a row unfolded where other rows come before it."""

    details: Callable[[R], Details]
    identity: Callable[[R], str]


@dataclass(frozen=True, slots=True)
class Order:
    """Rows in the order of a column, by its label; "" leaves them as they are."""

    label: str = ""
    is_descending: bool = False

    def sort(self, columns: Columns[R], rows: Sequence[R]) -> list[R]:
        """The rows in this order; those without a value last."""
        column = next((column for column in columns if column.label == self.label), None)
        if column is None:
            return list(rows)
        keys = [(_key(column.cell(row)), row) for row in rows]
        known = [(key, row) for key, row in keys if key is not None]
        known.sort(key=lambda pair: pair[0], reverse=self.is_descending)
        return [row for _, row in known] + [row for key, row in keys if key is None]

    def after_click(self, column: Column[Any]) -> Order:
        """The order after a click on a heading: turned round where it is in this order already."""
        return Order(column.label, not self.is_descending if self.label == column.label else column.is_number)


def _key(cell: Cell) -> tuple[int, float, str] | None:
    """The place of a cell in an order; numbers come before texts."""
    match cell:
        case None | "" | Sparkline():
            return None
        case Amount(value, _):
            return 0, value, ""
        case int() | float():
            return 0, cell, ""
        case datetime():
            return 0, cell.timestamp(), ""
        case Link(text, _, _) | Badge(text, _):
            return 1, 0.0, text.lower()
    return 1, 0.0, cell.lower()


def pair_columns(name: str, value: str) -> Columns[tuple[str, str]]:
    return Column(name, lambda pair: pair[0]), Column(value, lambda pair: pair[1])


class Table(Generic[R]):
    """A table with all its rows at once; `empty` is shown where there is no row.

    A table that `wraps` shows long texts as a whole, in several lines; otherwise they are cut. `on_order` is called
    after a click on a heading, instead of sorting the rows that are shown.
    """

    def __init__(
        self,
        view: View,
        columns: Columns[R],
        rows: Sequence[R] = (),
        empty: str = "nothing",
        *,
        wraps: bool = False,
        folding: Folding[R] | None = None,
        may_tick: bool = False,
        on_order: Callable[[], Coroutine[Any, Any, object]] | None = None,
    ) -> None:
        self.order = Order()
        self.rows: Sequence[R] = ()
        self._rows_as_given: Sequence[R] = ()
        self._view = view
        self._columns = {f"column-{index}": column for index, column in enumerate(columns)}
        self._folding = folding
        self._unfolded: set[str] = set()
        self._wraps = wraps
        self._may_tick = may_tick
        self._on_order = on_order
        fold = {"name": _FOLD_COLUMN, "label": "Details", "field": "id", "align": "left", "is_fold": True}
        self.element = ui.table(
            columns=[fold] * (folding is not None) + [column.as_quasar(name) for name, column in self._columns.items()],
            rows=[],
            row_key="id",
            pagination=0,
            selection="multiple" if may_tick else None,
        ).classes("w-full")
        self.element.props("flat bordered dense hide-pagination" + (" wrap-cells" if wraps else ""))
        self.element.add_slot("header-cell", _HEADING)
        self.element.add_slot("body", _ROW)
        if may_tick:
            self.element.add_slot(
                "header-selection", '<q-checkbox dense v-model="props.selected" aria-label="Select all rows"/>'
            )
        self.element.on("order", self._on_order_event)
        self.element.on("fold", self._on_fold_event)
        self.element.on("copy", self._on_copy_event)
        self.show(rows, empty)

    def show(self, rows: Sequence[R], empty: str | None = None) -> None:
        if empty is not None:
            self.element.props["no-data-label"] = empty
        self._rows_as_given = rows
        self.rows = self.order.sort(list(self._columns.values()), rows) if self._on_order is None else rows
        for quasar_column in self.element.columns:
            column = self._columns.get(quasar_column["name"])
            sorts = column is not None and column.label == self.order.label
            quasar_column["order"] = ("descending" if self.order.is_descending else "ascending") if sorts else None
        self.element.rows = [self._quasar_row(index, row) for index, row in enumerate(self.rows)]
        self.element.update()

    def selected(self) -> list[R]:
        ticked = {quasar_row["id"] for quasar_row in self.element.selected}
        return [row for index, row in enumerate(self.rows) if self._identity(index, row) in ticked]

    def _quasar_row(self, index: int, row: R) -> dict[str, Any]:
        identity = self._identity(index, row)
        values: dict[str, Any] = {"id": identity}
        values |= {name: self._quasar_value(column.cell(row)) for name, column in self._columns.items()}
        if self._may_tick:
            values["may_tick"] = True
        if self._folding is not None and identity in self._unfolded:
            details = self._folding.details(row)
            values["details"] = {"text": details.text, "copied": list(details.copied)}
            if details.link is not None:
                values["details"] |= {"href": self._quasar_value(details.link)["href"], "more": details.link.text}
        return values

    def _identity(self, index: int, row: R) -> str | int:
        return index if self._folding is None else self._folding.identity(row)

    async def _on_order_event(self, event: Any) -> None:
        column = self._columns.get(str(event.args))
        if column is None or not column.is_sorted:
            return
        self.order = self.order.after_click(column)
        if self._on_order is not None:
            await self._on_order()
        else:
            self.show(self._rows_as_given)

    def _on_fold_event(self, event: Any) -> None:
        identities = {str(self._identity(index, row)) for index, row in enumerate(self.rows)}
        self._unfolded = (self._unfolded ^ {str(event.args)}) & identities
        self.show(self._rows_as_given)

    def _on_copy_event(self, event: Any) -> None:
        identity, name = map(str, event.args)
        for index, row in enumerate(self.rows):
            if self._folding is not None and self._identity(index, row) == identity:
                self._view.copy(name, self._folding.details(row).copied.get(name, ""))

    def _quasar_value(self, cell: Cell) -> Any:
        match cell:
            case Link(text, parts, query):
                return {"text": self._cut(text), "href": self._view.url(*parts, **query)}
            case Badge(text, color):
                return {"text": self._cut(text), "color": color}
            case Amount(_, text):
                return text
            case Sparkline():
                return {"points": points} if (points := cell.points()) else ""
        return self._cut(cell_text(cell))

    def _cut(self, text: str) -> str:
        return text if len(text) <= _MAX_CELL_LENGTH or self._wraps else text[:_MAX_CELL_LENGTH] + "…"


def cell_text(cell: str | float | datetime | None) -> str:
    """A plain cell as people read it."""
    match cell:
        case None:
            return ""
        case bool():
            return "yes" if cell else "no"
        case int():
            return f"{cell:,}"
        case float():
            return f"{cell:,.1f}"
        case datetime():
            return f"{cell:%Y-%m-%d %H:%M:%S}"
    return cell


def bytes_text(size: float) -> str:
    """A number of bytes as people read it: 900 B, 1.5 kB, 20 MB."""
    for unit, least in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= least:
            return f"{size / least:.1f} {unit}" if size < 10 * least else f"{size / least:.0f} {unit}"
    return f"{size:.0f} B"


def filter_names(names: Sequence[str], filter_text: str) -> list[str]:
    """The names that contain all words of a filter, in any case."""
    words = filter_text.lower().split()
    return [name for name in names if all(word in name.lower() for word in words)]
