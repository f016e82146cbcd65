"""The tables that a query names, and the columns that it needs of topics, as Spark's plans have them.

Spark does not say to a Python source which columns a query uses. Its optimizer knows: above each read of a table it
puts a projection to the columns that the rest of the plan uses.

    select tags from orders where queueId = 0

    Project [tags]            uses tags
    +- Filter (queueId = 0)   uses queueId, and hands on what is used above
       +- RelationV2 [...]    all columns, of which these two are needed

A query is asked again with fewer columns, so their number and order must have no meaning in it: a star, a natural join
or `table orders` takes all columns there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TABLE: Final = re.compile(r"'UnresolvedRelation \[([^\],]+)\]")
_SCAN: Final = "DataSourceV2ScanRelation"
_COUNT: Final = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
_ALL_COLUMNS: Final = re.compile(r"\*|\|>|\bnatural\b|\btable\b", re.IGNORECASE)

Needed = dict[str, frozenset[str] | None]  # by topic; None is all of its columns


def tables_in(session: SparkSession, query: str) -> frozenset[str]:
    """The names of tables and views in a query, as it spells them. Raises: ParseException."""
    parsed = session._jsparkSession.sessionState().sqlParser().parsePlan(query)
    return frozenset(_TABLE.findall(parsed.toString()))


def takes_columns_by_name(query: str) -> bool:
    """Whether a query names each column that it uses; in doubt it does not."""
    return _ALL_COLUMNS.search(_COUNT.sub("", query)) is None


def scans(rows: DataFrame) -> int:
    """Count the reads of sources in the plan of a query."""
    return sum(node.getClass().getSimpleName() == _SCAN for root in _roots(rows) for node in _nodes(root))


def conditions(rows: DataFrame) -> frozenset[str]:
    """The names of the columns in the conditions of a query."""
    return frozenset(
        each.name()
        for root in _roots(rows)
        for node in _nodes(root)
        if node.getClass().getSimpleName() == "Filter"
        for each in _each(node.references().toSeq())
    )


def needed_columns(rows: DataFrame) -> Needed:
    """The columns that a query needs of each topic that it reads from brokers or files."""
    found: Needed = {}
    for root in _roots(rows):
        _look(root, None, found)
    return found


def _look(node: Any, used: frozenset[int] | None, found: Needed) -> None:
    """Add the needs of a part of a plan. `used` are the ids of the columns that are used above it; None is all."""
    kind = node.getClass().getSimpleName()
    if kind == _SCAN:
        topic = node.relation().options().get("topic")
        columns = {each.exprId().id(): each.name() for each in _each(node.output())}
        needed = None if used is None else frozenset(columns[each] for each in used & columns.keys())
        before = found.get(topic, frozenset())
        found[topic] = None if needed is None or before is None else needed | before
        return
    if kind in ("Project", "Aggregate"):
        used = _references(node)
    else:
        used = used | _references(node) if kind == "Filter" and used is not None else None
    for child in _each(node.children()):
        _look(child, used, found)


def _references(node: Any) -> frozenset[int]:
    return frozenset(each.exprId().id() for each in _each(node.references().toSeq()))


def _roots(rows: DataFrame) -> Iterator[Any]:
    """The plan of a query, and those of its subqueries; only Java has them."""
    plan = rows._jdf.queryExecution().optimizedPlan()
    yield plan
    yield from _each(plan.subqueriesAll())


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in _each(node.children()):
        yield from _nodes(child)


def _each(sequence: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala."""
    return (sequence.apply(number) for number in range(sequence.size()))
