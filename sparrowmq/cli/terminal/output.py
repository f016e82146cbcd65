"""Output of commands: tables for people, JSON or CSV for programs, by --output.

    table    columns two spaces apart; a list without heads is one name on a line
    json     [{"broker": "broker-a", "max_offset": 7}, ...]; of several tables {"queues": [...], ...}
    csv      the same names in the first line; several tables have an empty line between them

A completed change is a sentence for people, and one object or row for programs.

Messages beside the tables go to stderr where programs read stdout. Characters of messages, groups and clients that
would steer a terminal are shown as an escape, such as \\x1b, in all but CSV, which has none.

`Progress` is one line of the terminal that is redrawn, and deleted at the end; nothing where stderr is a pipe or a
file, nor with `--output json|csv`.

    reading the log   ███████▌······················   25 %   0:41 left
    1,200 sent

`Steps` are for a long operation: a line on stderr for each step, and the drawn line for what is waited for.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Self, TypeVar

import click

from sparrowmq.cli.terminal.plain_terminal import shown

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")

Rows = Iterable[Sequence[object]]
Table = tuple[Sequence[str], Rows]

_KEY: Final = "sparrowmq.output"
_INVISIBLE: Final = re.compile(r"[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # which JSON leaves as they are
WIDTH: Final = 30
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_REDRAW_S: Final = 0.1  # as often as an eye can follow
_ESTIMATE_AFTER_S: Final = 2.0  # before that a guess of what is left jumps about


def _keep(ctx: click.Context, param: click.Parameter, value: str) -> None:
    ctx.meta[_KEY] = value


OUTPUT_OPTION: Final = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    expose_value=False,
    callback=_keep,
    help="For people, or for programs.",
)


def split_heads(names: str) -> tuple[str, ...]:
    """Return the heads of a table, which are written with a | between two of them."""
    return tuple(names.split("|"))


def print_table(heads: Sequence[str], rows: Rows, *, keys: Mapping[str, str] | None = None) -> None:
    """Print rows under their heads; `keys` has the names in JSON and CSV of heads that got a better word since."""
    if _format() == "table":
        _print_columns(heads, rows)
        return
    heads = [(keys or {}).get(head, head) for head in heads]
    if _format() == "json":
        _print_json(_objects(heads, rows))
    else:
        _print_csv(heads, rows)


def print_tables(**parts: Table) -> None:
    """Print several tables; programs find each by its name."""
    if _format() == "json":
        _print_json({name: _objects(heads, rows) for name, (heads, rows) in parts.items()})
        return
    for number, (heads, rows) in enumerate(parts.values()):
        if number:
            click.echo()
        print_table(heads, rows)


def print_names(items: Iterable[str], head: str = "name") -> None:
    """Print names, one on a line; CSV has a head."""
    if _format() == "json":
        _print_json(list(items))
        return
    for name in [*([head] if _format() == "csv" else []), *items]:
        click.echo(shown(name) if is_for_people() else name)


def print_line(text: str) -> None:
    """Print a line, or several, for people."""
    click.echo("\n".join(map(shown, text.split("\n"))))


def say(text: str) -> None:
    """Print a message beside the tables."""
    text = "\n".join(map(shown, text.split("\n")))
    click.echo(text, err=_format() != "table")


def confirm(question: str) -> None:
    """Ask whether to continue, beside what programs read. Raises: Abort, no; ClickException, no answer can come."""
    if not _ask(lambda: click.confirm(question, err=not is_for_people()), "give --yes to go on without it"):
        raise click.Abort


def ask_secret(question: str, instead: str, *, twice: bool = True) -> str:
    """Ask for a secret without showing it; `instead` says how to give it without a terminal. Raises: as `confirm`."""
    ask = partial(click.prompt, question, hide_input=True, confirmation_prompt=twice, err=True)
    return str(_ask(ask, instead))


def _ask(ask: Callable[[], T], instead: str) -> T:
    try:
        return ask()
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise click.ClickException(f"there is no terminal to answer this question at: {instead}") from None


def print_done(sentence: str, **fields: object) -> None:
    """Print what was done: a sentence for people, one object for programs."""
    if is_for_people():
        say(sentence)
    elif is_json():
        _print_json({key: _plain_value(value) for key, value in fields.items()})
    else:
        _print_csv(list(fields), [list(fields.values())])


def csv_row(cells: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(map(_csv_cell, cells))
    return text.getvalue()


def as_json(value: object, indent: int | None = None) -> str:
    """JSON for programs, which people read as well."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def is_for_people() -> bool:
    return _format() == "table"


def is_json() -> bool:
    return _format() == "json"


def is_csv() -> bool:
    return _format() == "csv"


def _format() -> str:
    context = click.get_current_context(silent=True)
    return str(context.meta.get(_KEY, "table")) if context is not None else "table"


def _print_columns(heads: Sequence[str], rows: Rows) -> None:
    """Columns two blanks apart; numbers end where their column ends."""
    rows = [list(row) for row in rows]
    texts = [list(heads), *(["-" if cell is None else shown(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    are_numbers = [bool(rows) and all(isinstance(row[column], int) for row in rows) for column in range(len(heads))]
    for text in texts:
        cells = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(text, widths, are_numbers, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def _print_json(value: object) -> None:
    click.echo(as_json(value, indent=2))


def _print_csv(heads: Sequence[str], rows: Rows) -> None:
    for cells in [[_key(head) for head in heads], *rows]:
        click.echo(csv_row(cells))


def _csv_cell(cell: object) -> Any:
    """A cell of CSV: of several values one text, as in `a b` and `key=value`."""
    if isinstance(cell, Mapping):
        cell = [f"{key}={value}" for key, value in cell.items()]
    return " ".join(map(str, cell)) if isinstance(cell, list) else _plain_value(cell)


def _objects(heads: Sequence[str], rows: Rows) -> list[dict[str, Any]]:
    keys = [_key(head) for head in heads]
    return [dict(zip(keys, map(_plain_value, row), strict=True)) for row in rows]


def _key(head: str) -> str:
    """MAX OFFSET is max_offset to programs."""
    return re.sub(r"[^a-z0-9]+", "_", head.lower()).strip("_")


def _plain_value(cell: object) -> Any:
    """A cell for programs: numbers stay numbers, what is none is null, times are ISO 8601."""
    if isinstance(cell, datetime):
        return cell.isoformat()
    if isinstance(cell, Mapping):
        return dict(cell)
    if isinstance(cell, list):
        return cell
    return cell if isinstance(cell, str | int | float | bool) or cell is None else str(cell)


class Progress:
    """The line that is drawn inside a `with`.

    It is overwritten with spaces instead of escape codes, so it works in any terminal. Calls are cheap enough for each
    record of a log: most of them only look at the clock.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._terminal = sys.stderr
        self.is_shown = is_for_people() and self._terminal.isatty()
        self._now_s = now_s
        self._drawn_s = -_REDRAW_S
        self._length = 0
        # Of the step that is under way: its name, when and where it began, where it is.
        self._step = ""
        self._begun_s = 0.0
        self._first = 0
        self._done_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.clear()

    def __call__(self, step: str, done_count: int, total: int) -> None:
        """Draw how much of a step is done; another name, or less than before, begins a new step."""
        if not self.is_shown:
            return
        now_s = self._now_s()
        if step != self._step or done_count < self._done_count:
            is_new = step != self._step
            self._step, self._begun_s, self._first = step, now_s, done_count
            self._drawn_s = -_REDRAW_S if is_new else self._drawn_s
        self._done_count = done_count
        if now_s - self._drawn_s >= _REDRAW_S:
            share = min(1.0, max(0.0, done_count / total)) if total > 0 else 1.0
            self._draw(f"{step}   {bar(share)}  {share:4.0%}{self._time_left(now_s, total)}", now_s)

    def show(self, text: str) -> None:
        """Draw a text, for work of unknown size."""
        if self.is_shown and (now_s := self._now_s()) - self._drawn_s >= _REDRAW_S:
            self._draw(text, now_s)

    def clear(self) -> None:
        """Delete the line, so that another text can stay; the next call draws it again."""
        if self._length:
            self._terminal.write(f"{' ' * self._length}\r")
            self._terminal.flush()
            self._length = 0
        self._drawn_s = -_REDRAW_S

    def _time_left(self, now_s: float, total: int) -> str:
        spent_s, progress_count = now_s - self._begun_s, self._done_count - self._first
        if spent_s < _ESTIMATE_AFTER_S or progress_count <= 0:
            return ""
        minutes, seconds = divmod(round(spent_s * max(0, total - self._done_count) / progress_count), 60)
        return f"   {minutes}:{seconds:02d} left"

    def _draw(self, text: str, now_s: float) -> None:
        width = max(1, shutil.get_terminal_size().columns - 1)  # a full line would wrap
        text = text[:width]
        self._terminal.write(f"{text.ljust(min(self._length, width))}\r")
        self._terminal.flush()
        self._length, self._drawn_s = len(text), now_s


class Steps(Progress):
    """The lines of one operation, inside a `with`."""

    def begin(self, text: str) -> None:
        self.clear()
        click.echo(shown(text), err=True)

    def show(self, text: str) -> None:
        """Show what is waited for; a text that begins with "[" is a step."""
        if text.startswith("["):
            self.begin(text)
        else:
            super().show(text)


def bar(share: float) -> str:
    """Return a bar of which `share` of 1 is filled, to an eighth of a cell."""
    cells, eighths = divmod(int(share * WIDTH * 8), 8)
    filled = "█" * cells + (_EIGHTHS[eighths] if eighths else "")
    return filled.ljust(WIDTH, "·")
