"""The one table of all pages: its columns are data, and it shows rows of any kind.

A cell is a text, a number, a time, a link, a badge or a small line. The browser shows each as text, never as HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from nicegui import ui

from sparrowmq.console.layout.view import View

R = TypeVar("R")

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


UP: Final = Badge("up", "green-8")
NO_ANSWER: Final = Badge("no answer", "red-8")


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A small line of values; empty for fewer than two."""

    values: Sequence[float]

    def points(self, width: int = 120, height: int = 24) -> str:
        """The line as SVG takes it."""
        if len(self.values) < 2:
            return ""
        most = max(*self.values, 1e-9)
        step = width / (len(self.values) - 1)
        heights = [height - 1 - value / most * (height - 2) for value in self.values]
        return " ".join(f"{at * step:.1f},{y:.1f}" for at, y in enumerate(heights))


Cell = str | int | float | datetime | Link | Badge | Sparkline | None


@dataclass(frozen=True)
class Column(Generic[R]):
    """A column.

    Attributes:
        cell: the column's value in a row.
        is_number: aligned right.
        is_wide: hidden on a phone.
    """

    label: str
    cell: Callable[[R], Cell]
    is_number: bool = False
    is_wide: bool = False

    def as_quasar(self, name: str) -> dict[str, Any]:
        shown = "max-sm:hidden" if self.is_wide else ""
        align = "right" if self.is_number else "left"
        return {
            "name": name,
            "label": self.label,
            "field": name,
            "align": align,
            "classes": shown,
            "headerClasses": shown,
        }


Columns = Sequence[Column[R]]


def pairs(name: str, value: str) -> Columns[tuple[str, str]]:
    """Two columns, for names and their values."""
    return Column(name, lambda pair: pair[0]), Column(value, lambda pair: pair[1])


class Table(Generic[R]):
    """A table with all its rows at once.

    Args:
        empty: shown where there is no row.
        wraps: long texts are broken into lines; otherwise they are cut.
    """

    def __init__(
        self,
        view: View,
        columns: Columns[R],
        rows: Sequence[R] = (),
        empty: str = "nothing",
        *,
        wraps: bool = False,
    ) -> None:
        self._view = view
        self._columns = {f"column-{at}": each for at, each in enumerate(columns)}
        self.element = ui.table(
            columns=[each.as_quasar(name) for name, each in self._columns.items()],
            rows=[],
            row_key="id",
            pagination=0,
        ).classes("w-full")
        self.element.props("flat bordered dense hide-pagination" + (" wrap-cells" if wraps else ""))
        for name in self._columns:
            self.element.add_slot(f"body-cell-{name}", _CELL)
        self.show(rows, empty)

    def show(self, rows: Sequence[R], empty: str | None = None) -> None:
        """Replace the rows."""
        if empty is not None:
            self.element.props["no-data-label"] = empty
        self.element.rows = [
            {"id": at, **{name: self._shown(each.cell(row)) for name, each in self._columns.items()}}
            for at, row in enumerate(rows)
        ]
        self.element.update()

    def selected(self) -> list[int]:
        """The positions of the rows with a tick."""
        return [each["id"] for each in self.element.selected]

    def _shown(self, cell: Cell) -> str | dict[str, str]:
        match cell:
            case Link(text, parts, query):
                return {"text": text, "href": self._view.url(*parts, **query)}
            case Badge(text, color):
                return {"text": text, "color": color}
            case Sparkline():
                return {"points": points} if (points := cell.points()) else ""
        return text_of(cell)


def text_of(cell: str | float | datetime | None) -> str:
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


def chosen(names: Sequence[str], wanted: str) -> list[str]:
    """The names that contain all words of a filter, in any case."""
    words = wanted.lower().split()
    return [name for name in names if all(word in name.lower() for word in words)]
