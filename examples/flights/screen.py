"""The screen of the demo: progress bars and the worst hours on a terminal; without one, a line now and then."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.flights.results import Results
from examples.flights.stages import Stages

WORST = 3
LINE_EVERY_S = 5.0


class Screen:
    """Used as a context manager; call `refresh` several times a second."""

    def __init__(self, stages: Stages, results: Results, file: TextIO | None = None) -> None:
        self._stages = stages
        self._results = results
        self._console = Console(file=file or sys.stdout, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._next_line = time.monotonic() + LINE_EVERY_S
        self._told = ""

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, markup=False)

    def refresh(self) -> None:
        if self._live is not None:
            self._live.update(Group(self._bars(), Text(self._stages.waits), self._worst_hours()), refresh=True)
            return
        if self._stages.waits != self._told:
            self._told = self._stages.waits
            self.say(self._told or "rows have arrived in both tables")
        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY_S
            self.say(self._line())

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """The last picture stays."""
        if self._live is not None:
            self.refresh()
            live, self._live = self._live, None
            live.__exit__(None, None, None)

    def _line(self) -> str:
        parts = []
        for name, stage in self._stages.all().items():
            of = f" of {stage.total}" if stage.total else ""
            parts.append(f"{name} {stage.done}{of}")
        return ", ".join(parts)

    def _bars(self) -> Table:
        table = Table.grid(padding=(0, 1))
        table.add_column(min_width=27)
        for _ in range(3):
            table.add_column(justify="right")
        for stage in self._stages.all().values():
            total = stage.total or None
            table.add_row(
                stage.label,
                ProgressBar(total=total or 1, completed=stage.done if total else 0, width=30),
                f"{stage.done:,}",
                f"{stage.messages_per_s:,.0f}/s",
            )
        return table

    def _worst_hours(self) -> Table:
        table = Table(title="Worst hours so far, mean delay at departure", title_justify="left", box=None)
        for heading in ("origin", *("hour (UTC)", "min") * WORST):
            table.add_column(heading, justify="right" if heading == "min" else "left")
        for origin, hours in self._results.worst(WORST).items():
            cells = [(f"{row['hour']:%d %b %H:%M}", f"{row['mean_dep_delay_min']:.0f}") for row in hours]
            table.add_row(origin, *(cell for pair in cells for cell in pair))
        return table
