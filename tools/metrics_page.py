"""The page of all metrics, docs/operate/all-metrics.md, from the calls that declare figures (metrics/figures.py).

The calls are read, not run, so their names and descriptions are literals. docs/operate/metrics.md has the names that
are put together: those of rocketmq-exporter and of pipelines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sparrowmq.broker.metrics.prometheus import NAMES_OF_5X, NAMES_OF_5X_AT_MASTERS

PACKAGE: Final = Path(__file__).parents[1] / "sparrowmq"
_SECTIONS: Final = {
    "broker": "Broker",
    "namesrv": "Name server",
    "metrics": "Broker and name server",
    "console": "Console",
    "spark": "Streams of Spark",
}
_KINDS: Final = {
    "counter": "counter",
    "counters": "counter",
    "read_counter": "counter",
    "gauge": "gauge",
    "gauges": "gauge",
    "histograms": "histogram",
    "time_histogram": "histogram",
}
_INTRODUCTION: Final = """\
# All metrics

Metrics of a broker also have the labels `cluster`, `node_type`, `node_id` (its name) and `role` (`master` or `slave`);
those of other programs have `node_type`. Metrics of topics and groups are those of masters, because slaves have copies.
[Metrics and health](metrics.md) explains how to switch metrics on, and what to alert on.

Every program also has `process_resident_memory_bytes`, `process_cpu_seconds_total`, `process_open_fds` and others
about its process. A console also has `sparrowmq_loop_lag_seconds` and `sparrowmq_gc_pause_seconds`.
"""


class Row(NamedTuple):
    """A figure as its declaration has it."""

    name: str
    kind: str
    labels: str
    help: str


def metrics_page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    for folder, title in _SECTIONS.items():
        files = [file for file in (PACKAGE / folder).rglob("*.py") if file.name != "exporter_names.py"]
        rows = {row.name: row for file in files for row in declared(file.read_text(encoding="utf-8"))}
        for name, other in (NAMES_OF_5X | NAMES_OF_5X_AT_MASTERS).items() if folder == "broker" else ():
            rows[name] = rows[other]._replace(name=name)
        parts.append(f"## {title}\n\n| Metric | Kind | Labels | Meaning |\n|---|---|---|---|")
        parts += [f"| `{name}` | {kind} | {labels} | {help} |" for name, kind, labels, help in sorted(rows.values())]
        parts.append("")
    return "\n".join(parts)


def declared(source: str) -> Iterator[Row]:
    """The figures of one file. Labels are literals or constants of the module."""
    if not any(f".{method}(" in source for method in _KINDS):
        return
    tree = ast.parse(source)
    constants = {}
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(name), value=ast.Tuple() as labels):
                constants[name] = labels
    for call in ast.walk(tree):
        match call:
            case ast.Call(
                func=ast.Attribute(attr=method),
                args=[ast.Constant(str(name)), ast.Constant(str(help)), *rest],
            ) if method in _KINDS:
                given = rest[0] if rest else None
                if isinstance(given, ast.Name):
                    given = constants.get(given.id)
                names = ast.literal_eval(given) if isinstance(given, ast.Tuple) else ()
                yield Row(name, _KINDS[method], ", ".join(names), help)
