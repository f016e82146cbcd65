"""The state of a lake, for people and for programs: a page, JSON, figures for Prometheus, and whether it is ready.

/          the page        /status    JSON        /metrics    figures
/readyz    200, or 503 and why; a line for each table that fails
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.metrics.http_endpoint import Answer, MakePage, Query

if TYPE_CHECKING:
    from sparrowmq.metrics.figures import Figures, Rows
    from sparrowmq.spark.lakehouse.lake_loop import LakeLoop
    from sparrowmq.spark.lakehouse.lake_table import LakeTable

HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
_MAX_SILENCE_S: Final = 120  # without a look at the brokers a lake is not ready
_METER_WIDTH_S: Final = 60  # the width of the drawing of freshness

_STYLE: Final = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:.3em .8em;text-align:right;"
    "border-bottom:1px solid #ddd}td:first-child,th:first-child,td.text{text-align:left}.failing{background:#fdd}"
    ".waiting{background:#fdd;font-weight:bold}.deleted{color:#888}meter{width:8em}"
)
_COLUMNS: Final = {
    "topic": "Topic",
    "state": "State",
    "rows": "Rows",
    "rejects": "Rejects",
    "lost": "Lost",
    "recreated": "Recreated",
    "lag": "Lag",
    "freshness_s": "Freshness (s)",
    "last_delay_s": "Last delay (s)",
    "batches": "Batches",
    "failures": "Failures",
    "error": "Last error",
}


def state_of_table(table: LakeTable) -> str:
    """Return kept, behind, failing (is tried again), waiting (for a person), merging, asking, deleted or new."""
    if table.is_deleted:
        return "deleted"
    if table.has_failed:
        return "waiting" if table.is_permanent else "failing"
    if table.busy_with:
        return table.busy_with
    if table.is_complete and not table.lag:
        return "kept"
    return "behind" if table.lag or table.is_due() else "new"


def status(rounds: LakeLoop) -> dict[str, Any]:
    """Return the state of all tables, for JSON."""
    return {
        "ready": unready_reason(rounds) == "",
        "error": rounds.error,
        "tables": [_row(table) for _, table in sorted(rounds.tables.copy().items())],
    }


def _row(table: LakeTable) -> dict[str, Any]:
    figures = table.figures
    return {
        "topic": table.topic,
        "table": str(table.root),
        "format": table.settings.format,
        "state": state_of_table(table),
        "rows": figures.rows,
        "rejects": figures.errors,
        "damaged": figures.damaged,
        "lost": None if figures.recreated else figures.lost,  # unread messages of the topic before were not counted
        "recreated": figures.recreated,
        "lag": table.lag,
        "freshness_s": round(table.age_s, 1),
        "last_delay_s": round(figures.delay_s, 1),
        "batches": figures.batches,
        "failures": figures.failures,
        "error": table.error or table.missing_files,
    }


def unready_reason(rounds: LakeLoop) -> str:
    """Return why a lake is not ready; "" if it is."""
    if rounds.checked_s is None:
        return rounds.error or "the brokers were not asked yet"
    silent_s = rounds.monotonic() - rounds.checked_s
    if silent_s > _MAX_SILENCE_S:
        return f"the brokers were last asked {silent_s:.0f} s ago; {rounds.error or 'a round takes long'}"
    failing = _failing(rounds)
    if failing and len(failing) == sum(not table.is_deleted for table in rounds.tables.copy().values()):
        return "all tables fail"
    return ""


def _failing(rounds: LakeLoop) -> list[LakeTable]:
    return [table for _, table in sorted(rounds.tables.copy().items()) if table.has_failed and not table.is_deleted]


def pages(rounds: LakeLoop) -> dict[str, MakePage]:
    """Return the lake's pages, for the address of its metrics."""

    async def page(_: Query) -> Answer:
        return Answer(200, html(status(rounds)).encode(), HTML)

    async def as_json(_: Query) -> Answer:
        return Answer(200, json.dumps(status(rounds)).encode(), JSON)

    async def ready(_: Query) -> Answer:
        reason = unready_reason(rounds)
        lines = [
            reason or "ok",
            *(f"{table.topic} is failing: {' '.join(table.error.split())}" for table in _failing(rounds)),
        ]
        return Answer(503 if reason else 200, "".join(f"{line}\n" for line in lines).encode())

    return {"/": page, "/status": as_json, "/readyz": ready}


def html(lake: dict[str, Any]) -> str:
    """Return the page: one row for each table; tables that need attention come first."""
    order = {"waiting": 0, "failing": 1, "behind": 2}
    tables = sorted(lake["tables"], key=lambda row: (order.get(row["state"], 3), row["topic"]))
    failing = sum(row["state"] in ("failing", "waiting") for row in tables)
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS.values())
    body = "".join(_html_row(row) for row in tables)
    error = f"<p class='failing'>{escape(lake['error'])}</p>" if lake["error"] else ""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta http-equiv='refresh' content='5'>"
        f"<title>SparrowMQ lake</title><style>{_STYLE}</style></head><body><h1>SparrowMQ lake</h1>{error}"
        f"<p>{len(tables)} tables, {failing} failing</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></body></html>\n"
    )


def _html_row(row: dict[str, Any]) -> str:
    cells = "".join(_cell(name, row[name]) for name in _COLUMNS)
    return f"<tr class='{escape(row['state'])}'>{cells}</tr>"


def _cell(name: str, value: Any) -> str:
    if name == "freshness_s":
        meter = f"low='10' high='30' optimum='0' value='{min(value, _METER_WIDTH_S)}'"
        return f"<td><meter min='0' max='{_METER_WIDTH_S}' {meter}></meter> {value:,.1f}</td>"
    if isinstance(value, str):
        return f"<td class='text'>{escape(value)}</td>"
    return "<td>not known</td>" if value is None else f"<td>{value:,}</td>"


_COUNTERS: Final = {
    "read": "messages that were read",
    "rows": "rows that were added to tables",
    "errors": "messages that became rejects, in TABLE.errors",
    "damaged": "messages whose body was damaged",
    "lost": "offsets without a message, because retention had removed it",
    "recreated": "times that the topic was deleted and made again, so that places come twice in the table",
    "batches": "batches that are done",
    "failures": "failures of tables, each followed by another attempt",
    "commit_s": "seconds of commits",
}
ReadFigure = Callable[["LakeTable"], "float | None"]
_GAUGES: Final[Mapping[str, tuple[str, ReadFigure]]] = {
    "freshness_seconds": ("age of the oldest message that the table lacks", lambda table: table.age_s),
    "delay_seconds": (
        "from storing the oldest message of the last batch to its commit",
        lambda table: table.figures.delay_s,
    ),
    "lag": ("messages that the table lacks", lambda table: table.lag),
    "failing": ("1 after a failure, until a batch is done", lambda table: table.has_failed),
    "waiting": (
        "1 where the same would fail until somebody acts",
        lambda table: table.has_failed and table.is_permanent,
    ),
    "files": ("files of the table, as of the last merge", lambda table: table.figures.files),
}
_METRIC_NAMES: Final = {"commit_s": "commit_seconds", "errors": "rejects"}


def _counter_value(entry: str, table: LakeTable) -> float:
    return float(getattr(table.figures, entry))


def declare(figures: Figures, rounds: LakeLoop) -> None:
    """Declare the figures of all tables, for Prometheus."""

    def rows(read: ReadFigure) -> Rows:
        values = [(topic, read(table)) for topic, table in sorted(rounds.tables.copy().items())]
        return [((topic,), float(value)) for topic, value in values if value is not None]

    for entry, help in _COUNTERS.items():
        name = f"sparrowmq_lake_{_METRIC_NAMES.get(entry, entry)}_total"
        figures.counters(name, help, ("topic",), partial(rows, partial(_counter_value, entry)))
    for name, (help, read) in _GAUGES.items():
        figures.gauges(f"sparrowmq_lake_{name}", help, ("topic",), partial(rows, read))
    figures.gauge("sparrowmq_lake_tables", "tables that are kept", lambda: len(rounds.tables))
    figures.gauge(
        "sparrowmq_lake_ready",
        "1 if the brokers were asked lately, and a table works",
        lambda: unready_reason(rounds) == "",
    )
