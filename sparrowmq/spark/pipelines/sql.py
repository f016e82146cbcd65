"""The pipeline `sql`: a question to topics, in SQL, as of one moment.

    select tags, count(*) from orders where storeTimestamp >= '2026-01-31' group by tags

A table in a query that Spark does not know is a topic. It becomes a view of the messages that the topic has at the
moment of the question, or had at an earlier one. Bodies are text here, for JSON: `get_json_object(body, '$.id')`.

Only the columns that a query needs are made. If it needs none of a topic, as `select count(*)` does, no message is
read. Spark does not tell a Python source the columns; its optimizer projects each read to those that the plan uses.

    select tags from orders where queueId = 0

    Project [tags]            uses tags
    +- Filter (queueId = 0)   uses queueId, and hands on what is used above
       +- RelationV2 [...]    all columns, of which these two are needed

The query runs again with fewer columns, so their number and order must have no meaning in it: a star, a natural join or
`table orders` takes all columns there are.

Conditions limit reading only if a query sees each topic once, and no other query sees its views. For a Python source,
Spark (4.1 to 4.3) keeps the filters of one read for the next read of the same table.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as f

from sparrowmq.core.safe_text import counted
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.subscription import ALL
from sparrowmq.spark.options import SourceOptions, StoredOptions, parse
from sparrowmq.spark.pipelines.running.folders import new_folder
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.running.runner import parallel_tasks
from sparrowmq.spark.pipelines.running.session import SETTINGS, first_line, own_session, without_error_log
from sparrowmq.spark.pipelines.running.span import offsets_by_topic, since_until, span_of
from sparrowmq.spark.source.batch_source import FILTER_COLUMNS

_QUERY_SETTINGS: Final = {
    "spark.sql.session.timeZone": SETTINGS["spark.sql.session.timeZone"],
    "spark.sql.python.filterPushdown.enabled": "true",
}
_CASE_SENSITIVE: Final = "spark.sql.caseSensitive"
# Options that choose the columns; then they stay as they are.
_COLUMN_OPTIONS: Final = frozenset({"columns", "kafkacompat", "includeproperties", "includeheaders"})
# Read where no column is needed, and rows must be counted by reading them.
_SMALLEST_COLUMN: Final = "queueId"
_TABLE: Final = re.compile(r"'UnresolvedRelation \[([^\],]+)\]")
_SCAN: Final = "DataSourceV2ScanRelation"
_COUNT: Final = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
_ALL_COLUMNS: Final = re.compile(r"\*|\|>|\bnatural\b|\btable\b", re.IGNORECASE)

Needed = dict[str, frozenset[str] | None]  # by topic; None is all of its columns


@dataclass
class Answer:
    """The answer to a query. Spark reads when `rows` are used."""

    rows: DataFrame  # to go on with. `each` and `save` know better what need not be read.
    report: Report
    views: Mapping[str, str]  # what was read as what, in words, by topic
    _narrowed_rows: DataFrame | None = None

    @property
    def chosen(self) -> DataFrame:
        """The rows for one use of them, which reads no more than it must."""
        return self.rows if self._narrowed_rows is None else self._narrowed_rows

    def each(self) -> Iterator[Row]:
        """The rows one after the other; the report counts them."""
        begin = time.monotonic()
        for row in self.chosen.toLocalIterator():
            self.report.written += 1
            yield row
        self.report.seconds += time.monotonic() - begin

    def save(self, to: str | Path) -> None:
        """Write the rows as Parquet files into a folder that is not there yet. Raises: ConfigError, it is there."""
        with new_folder(to) as folder:
            begin, count = time.monotonic(), Observation()
            rows = self.chosen.observe(count, f.count(f.lit(1)).alias("rows"))
            rows.write.parquet(str(folder))
        self.report.written = count.get["rows"]
        self.report.seconds += time.monotonic() - begin


def sql(
    query: str,
    *,
    name_server: str | None = None,
    store: str | Path | None = None,
    since: str | None = None,
    at: str | None = None,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> Answer:
    """Ask topics of a cluster, or of a stored log.

    Args:
        name_server: of the cluster. store: a folder with a log instead; no broker is needed then.
        since, at: only messages stored at or after the one, and before the other: milliseconds, or ISO 8601.
        options: of the source, for all topics.
        spark: a session; the query sees its views, before topics of the same name.
    Raises: ConfigError, the query cannot be understood, or names a topic that does not exist.
    """
    if (name_server is None) == (store is None):
        raise ConfigError("give either name_server (-n) or store")
    source_options = {"bodyType": "string", **(options or {})}
    source_options |= {"nameServer": name_server} if name_server else {"path": str(store)}
    time_options = since_until(since, at)
    source_options |= (
        time_options if name_server else {name: value for name, value in time_options.items() if "Strategy" not in name}
    )
    session = own_session(spark, _QUERY_SETTINGS, sees_views=True)
    _set_case_sensitivity(session, query)
    report, views = Report(read=None if store else 0), dict[str, _View]()
    while isinstance(rows := _rows_or_topic(session, query, views), str):
        views[rows] = _build_view(rows, source_options, report)
        views[rows].show(session, rows)
    narrowed = _narrow(session, query, rows, views)
    # Only the source knows how much less it reads than its topics have.
    columns = {name.lower() for name in condition_columns(rows)}
    may_read_less = (
        report.read is not None and count_scans(rows) == len(views) and not columns.isdisjoint(FILTER_COLUMNS)
    )
    if may_read_less:
        report.read = None
    at_most = "at most " if may_read_less else ""
    return Answer(rows, report, {name: at_most + view.description for name, view in views.items()}, narrowed)


def _set_case_sensitivity(session: SparkSession, query: str) -> None:
    """See that names which differ in case only, as topics may, are not one view. Columns need their case then, too."""
    with without_error_log():
        try:
            names = tables_in(session, query)
        except AnalysisException:  # it is raised again with more words when the query is asked
            return
    if max(Counter(map(str.lower, names)).values(), default=1) > 1:
        session.conf.set(_CASE_SENSITIVE, "true")


def _narrow(session: SparkSession, query: str, rows: DataFrame, views: Mapping[str, _View]) -> DataFrame:
    needed = needed_columns(rows) if takes_columns_by_name(query) else {}
    # Conditions limit the reading only if each topic is read once.
    pushdown = {"pushdown": "true"} if count_scans(rows) == len(views) else {}
    for name, view in views.items():
        view.narrow(session, name, needed.get(name), pushdown)
    return session.sql(query)


def _rows_or_topic(session: SparkSession, query: str, views: Collection[str]) -> DataFrame | str:
    """The rows of a query, or the name of a topic that it needs. Raises: ConfigError."""
    try:
        with without_error_log():
            return session.sql(query)
    except AnalysisException as error:
        name = _missing_table(error)
        if name is None or name in views:
            raise ConfigError(f"the query cannot run: {first_line(error)}") from None
        return name


def _missing_table(error: AnalysisException) -> str | None:
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return None
    name = (error.getMessageParameters() or {}).get("relationName", "")
    return name.strip("`") if "`.`" not in name and name else None


@dataclass(frozen=True)
class _View:
    """The part of a topic that a query sees, and its description."""

    options: Mapping[str, str]
    description: str
    rows: int | None = None  # if that many are read for certain

    def show(self, session: SparkSession, topic: str, **extra: str) -> None:
        """Make it known to the session."""
        options = {**self.options, **extra}
        if "path" not in options:
            options |= parallel_tasks(session, options)
        rows = session.read.format("rocketmq").options(**options).load()
        rows.createOrReplaceTempView(f"`{topic}`")

    def narrow(
        self, session: SparkSession, topic: str, needed: Collection[str] | None, pushdown: Mapping[str, str]
    ) -> None:
        """Make the columns known that a query needs; None is all. If it needs only a count, read none."""
        if needed is not None and not needed and self.rows is not None:
            columns = session.table(f"`{topic}`").schema
            nulls = [f.lit(None).cast(column.dataType).alias(column.name) for column in columns]
            session.range(self.rows).select(*nulls).createOrReplaceTempView(f"`{topic}`")
            return
        if needed is None or any(name.lower() in _COLUMN_OPTIONS for name in self.options):
            columns_option = {}
        else:
            columns_option = {"columns": ",".join(sorted(needed)) or _SMALLEST_COLUMN}
        self.show(session, topic, **columns_option, **({} if "path" in self.options else pushdown))


def _build_view(topic: str, options: Mapping[str, str], report: Report) -> _View:
    """Raises: ConfigError, NoRoute, BadStore."""
    topic_options = {**options, "topic": topic}
    count = None
    if "path" in options:
        parsed = parse(StoredOptions, topic_options)
        description = f"messages of {topic} in {parsed.path}"
    else:
        span = span_of(topic_options)
        topic_options = span.batch_options(topic_options)
        report.add_read(span.rows)
        report.offsets = {**report.offsets, **offsets_by_topic(span.end)}
        description = f"{counted(span.rows, 'message')} of {topic}, in {counted(len(span.end), 'queue')}"
        count = span.rows if _has_a_row_for_each_offset(parse(SourceOptions, topic_options)) else None
    return _View(topic_options, description, count)


def _has_a_row_for_each_offset(options: SourceOptions) -> bool:
    """Whether reading gives a row for each offset, or fails."""
    return (
        options.expression == ALL and options.sql is None and options.fail_on_data_loss and options.bad_records != "dlq"
    )


def tables_in(session: SparkSession, query: str) -> frozenset[str]:
    """The names of tables and views in a query, as it spells them. Raises: ParseException."""
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(query)
    return frozenset(_TABLE.findall(plan.toString()))


def takes_columns_by_name(query: str) -> bool:
    """Whether a query names each column that it uses; in doubt it does not."""
    return _ALL_COLUMNS.search(_COUNT.sub("", query)) is None


def count_scans(rows: DataFrame) -> int:
    """Count the reads of sources in the plan of a query."""
    return sum(node.getClass().getSimpleName() == _SCAN for root in _roots(rows) for node in _nodes(root))


def condition_columns(rows: DataFrame) -> frozenset[str]:
    """The names of the columns in the conditions of a query."""
    return frozenset(
        column.name()
        for root in _roots(rows)
        for node in _nodes(root)
        if node.getClass().getSimpleName() == "Filter"
        for column in _elements(node.references().toSeq())
    )


def needed_columns(rows: DataFrame) -> Needed:
    """The columns that a query needs of each topic that it reads from brokers or files."""
    needs: Needed = {}
    for root in _roots(rows):
        _add_needs(root, None, needs)
    return needs


def _add_needs(node: Any, used_ids: frozenset[int] | None, needed_by_topic: Needed) -> None:
    """Add the needs of a part of a plan. `used_ids` are the ids of the columns that are used above it; None is all."""
    kind = node.getClass().getSimpleName()
    if kind == _SCAN:
        topic = node.relation().options().get("topic")
        columns = {column.exprId().id(): column.name() for column in _elements(node.output())}
        needed = None if used_ids is None else frozenset(columns[column_id] for column_id in used_ids & columns.keys())
        needed_before = needed_by_topic.get(topic, frozenset())
        needed_by_topic[topic] = None if needed is None or needed_before is None else needed | needed_before
        return
    if kind in ("Project", "Aggregate"):
        used_ids = _references(node)
    else:
        used_ids = used_ids | _references(node) if kind == "Filter" and used_ids is not None else None
    for child in _elements(node.children()):
        _add_needs(child, used_ids, needed_by_topic)


def _references(node: Any) -> frozenset[int]:
    return frozenset(column.exprId().id() for column in _elements(node.references().toSeq()))


def _roots(rows: DataFrame) -> Iterator[Any]:
    plan = rows._jdf.queryExecution().optimizedPlan()
    yield plan
    yield from _elements(plan.subqueriesAll())


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in _elements(node.children()):
        yield from _nodes(child)


def _elements(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))
