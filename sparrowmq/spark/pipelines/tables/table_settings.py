"""The settings of a table: `table.json` in the state's folder. A later start may only extend the schema."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.lake.address import Address, Catalog, table_root
from sparrowmq.spark.pipelines.lake.lake import OWN_FOLDER, record_at
from sparrowmq.spark.pipelines.lake.parquet import commits_at
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Partitioning
from sparrowmq.spark.pipelines.lake.spark_reader import read_table
from sparrowmq.spark.pipelines.lake.widening import fits
from sparrowmq.spark.pipelines.running.folders import check_same, lock_folder, read_sealed, write_sealed
from sparrowmq.spark.pipelines.tables.ddl import type_of
from sparrowmq.spark.pipelines.tables.json_bodies import WIDEN
from sparrowmq.spark.pipelines.tables.partition_columns import key_fault, partition_column_types
from sparrowmq.spark.pipelines.tables.progress import parse_record
from sparrowmq.spark.pipelines.tables.row_shapes import (
    OWN_COLUMNS,
    Objects,
    RawMessages,
    Shape,
    WholeMessages,
    arrow_types,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrowmq.spark.pipelines.running.runner import Runner


_COMMIT_WAIT_S: Final = 30.0  # for files of a batch or a merge to get to their places
_POLL_S: Final = 0.1


@dataclass
class TableSettings:
    """The settings of a table, fixed by its first start."""

    topic: str
    format: str
    mode: str
    schema: str | None
    fields: dict[str, str] = field(default_factory=dict)
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    begin: dict[str, Any] | None = None  # where it begins in each queue; None if brokers were never asked
    # By broker, when it had stored its newest message then, by its own clock; tables of earlier releases have none.
    newest_ms: dict[str, int] | None = None
    bodies: dict[str, Any] | None = None  # of Avro and Protobuf: the registry, or the schema itself
    depth: int = 0  # of objects and lists within columns; tables of earlier releases have text there
    first: int = 0  # the number in the table of the first batch of Spark's checkpoint
    resumed: dict[str, Any] | None = None  # where that begins, if it is not the table's first checkpoint
    address: str | None = None  # None: the folder beside the state
    catalog: str | None = None  # and the name of the table there; None: the one in the state
    key: str | None = None  # the column of which each value has one row, that of its last message
    # A property or field, as `op=d`, by which a message takes the row of its key out.
    deletes: str | None = None
    partition: str = str(BY_DAY)  # the fields and transforms by which it is divided
    type_changes: str = WIDEN  # the changes of types that bodies of JSON may cause, by the last start

    @property
    def partitioning(self) -> Partitioning:
        return Partitioning.parse(self.partition)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns that the table has beside those of bodies."""
        return (*OWN_COLUMNS, *self.partitioning.derived_names)

    def to_json(self) -> dict[str, Any]:
        """Return the settings for a file, without defaults that earlier releases do not know."""
        values = asdict(self)
        for name, default in (("partition", str(BY_DAY)), ("type_changes", WIDEN)):
            if values[name] == default:
                del values[name]
        return values

    def at_root(self, root: Path | Address) -> TableSettings:
        """Return the settings of a table at a root. Raises: ConfigError, a catalog without Iceberg."""
        if not isinstance(root, Address):
            return self
        if root.catalog is not None and self.format != "iceberg":
            raise ConfigError(f"a catalog goes with format iceberg, not with {self.format}")
        return replace(self, address=root.url, catalog=None if root.catalog is None else str(root.catalog))

    def shape(self) -> Shape:
        match self.mode:
            case "raw":
                return RawMessages()
            case "whole":
                return WholeMessages()
        return self.objects()

    def objects(self, fields: Mapping[str, str] | None = None) -> Objects:
        """Return the shape of rows in the modes json and schema; `fields` replaces the columns."""
        fields = self.fields if fields is None else fields
        return Objects(fields, is_closed=self.mode == "schema", depth=self.depth, partitioning=self.partitioning)

    def first_offsets(self) -> dict[MessageQueue, int]:
        """The first offset of each queue that the table takes from brokers; a queue made later has none."""
        return {
            MessageQueue(topic, broker, int(queue)): offset
            for topic, brokers in (self.begin or {}).items()
            for broker, queues in brokers.items()
            for queue, offset in queues.items()
        }


def check_no_key(root: Path | Address, settings: TableSettings, operation: str) -> None:
    """Raises: ConfigError, older rows would overwrite newer rows with the same key."""
    if settings.key is not None:
        raise ConfigError(
            f"{root} has one row for each {settings.key}, and {operation} would overwrite newer rows with older ones; "
            "only `sparrowmq lake` writes to it: send the messages to its topic again"
        )


def drop_unusable_key(settings: TableSettings) -> TableSettings:
    """Return the settings without an unusable type of the key. Raises: ConfigError, a user's schema has that type."""
    key = settings.key
    fault = key_fault(key, type_of(settings.fields[key])) if key in settings.fields else ""
    if not fault:
        return settings
    if settings.schema is not None:
        raise ConfigError(fault)
    return replace(settings, fields={name: ddl for name, ddl in settings.fields.items() if name != key})


@contextmanager
def lock_table(root: Path | Address, runner: Runner, name: str = "") -> Iterator[None]:
    """Lock a table's state, and a table in a folder itself: a copy of the state would allow a second run."""
    here = lock_folder(root / OWN_FOLDER) if isinstance(root, Path) else nullcontext()
    with runner.at_work(state_folder(root), name), here:
        yield


def locate_table(
    table: str | Path, state: str | Path | None = None, catalog_options: Mapping[str, str] | None = None
) -> Path | Address:
    """Return the folder of an existing table, or its address with its catalog. Raises: ConfigError."""
    root = table_root(table, state)
    settings = load_settings(root)
    if settings is None or settings.address is None:
        return root
    address = root.url if isinstance(root, Address) else root.as_uri()
    check_same(f"the table of {state_folder(root)}", {"address": settings.address}, {"address": address})
    catalog = None
    if settings.catalog is not None:
        name, _, known_as = settings.catalog.partition(":")
        catalog = Catalog(name, known_as, dict(catalog_options or {}))
    return Address(settings.address, state_folder(root), catalog)


def create_or_load_settings(root: Path | Address, settings: TableSettings) -> TableSettings:
    """Return the settings of the first start; this is the first start if there are none. Raises: ConfigError."""
    stored = load_checked_settings(root, settings)
    if stored is None:
        save_settings(state_folder(root), settings)
        return settings
    return stored


def load_checked_settings(root: Path | Address, settings: TableSettings) -> TableSettings | None:
    """Return the settings of an earlier start, with new and wider columns. Raises: ConfigError, they differ."""
    stored = load_settings(root)
    if stored is None:
        if _has_rows(root, settings.partitioning):
            raise ConfigError(
                f"{root} has rows, but {state_folder(root)} is gone, so it is not known which messages they are; "
                "restore it, or name another folder"
            )
        return None
    owner = f"the table at {root}"
    fixed_names = ("topic", "format", "mode", "address", "catalog", "key", "deletes")
    check_same(owner, asdict(stored), {name: getattr(settings, name) for name in fixed_names})
    if stored.partition != settings.partition:
        raise ConfigError(
            f"{owner} was begun with the partition {stored.partition}, not {settings.partition}; all rows must use the "
            f"same partitioning: write the partition `{stored.partition}`, or name another folder"
        )
    if ("registry" in (stored.bodies or {})) != ("registry" in (settings.bodies or {})):
        raise ConfigError(
            f"the table at {root} was begun {'with' if stored.bodies and 'registry' in stored.bodies else 'without'} "
            "a registry, and that cannot change; name another folder"
        )
    stored.bodies = settings.bodies  # a registry may move, and a file may get new fields
    stored.type_changes = settings.type_changes
    if stored.schema == settings.schema:
        return stored
    for divider in stored.partitioning.body_fields:
        old_type, new_type = stored.fields.get(divider.source), settings.fields.get(divider.source)
        if new_type is not None and old_type != new_type:
            raise ConfigError(
                f"{owner} is divided by {divider}, so {divider.source} stays {old_type}; name another folder for "
                f"{new_type}"
            )
    return replace(stored, schema=settings.schema, fields=extend_fields(owner, stored.fields, settings.fields))


def extend_fields(context: str, old_fields: Mapping[str, str], new_fields: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of a new schema. Raises: ConfigError, it lacks one of `old_fields`, or changes one."""
    old_types, new_types = arrow_types(old_fields), arrow_types(new_fields)
    for name, ddl in old_fields.items():
        if name not in new_fields:
            raise ConfigError(
                f"{context} has the column {name}, and the schema lacks it; add `{name} {ddl}` to the schema"
            )
        if not fits(old_types[name], new_types[name]):
            raise ConfigError(
                f"{context} has the column {name} as {ddl}, which cannot become {new_fields[name]}: a new type must "
                "hold all values of the old one; name another folder for another type"
            )
    return dict(new_fields)


def _has_rows(root: Path | Address, partitioning: Partitioning) -> bool:
    folder = root.folder if isinstance(root, Address) else root
    return folder is not None and any(
        next(folder.glob(f"**/{layout.pattern}"), None) is not None for layout in (BY_DAY, partitioning)
    )


def read_rows(spark: SparkSession, root: Path | Address) -> DataFrame:
    """Read a table: all rows of a batch or none. Raises: ConfigError, also if a killed run left a batch half done."""
    if (settings := load_settings(root)) is None:
        return read_table(spark, root)
    partitioning = settings.partitioning
    kinds = partition_column_types(partitioning, settings.fields)
    if isinstance(root, Address) or settings.format != "parquet":
        return read_table(spark, root, partitioning, kinds)
    end_s = time.monotonic() + _COMMIT_WAIT_S
    while time.monotonic() < end_s:
        commits = commits_at(root, state_folder(root))
        if commits is None:
            time.sleep(_POLL_S)
            continue
        rows = read_table(spark, root, partitioning, kinds)
        if commits_at(root, state_folder(root)) == commits:
            return rows
    raise ConfigError(
        f"a run has begun to change the files of {root}, and is not done: if it was killed, start the pipeline that "
        "fills the table again, as that ends the change; then repeat this"
    )


def load_settings(root: Path | Address) -> TableSettings | None:
    """Return the settings of the table at `root`; None if there is no table.

    The commits of a table in a folder have a copy.

    Raises: BadStore, the settings are damaged, and the table does not have them.
    """
    path = state_folder(root) / "table.json"
    exists = path.exists()
    if exists:
        with suppress(ValueError, TypeError):
            return TableSettings(**read_sealed(path))
    record = parse_record(record_at(root)) if isinstance(root, Path) else None
    if record is None and exists:
        raise BadStore(
            f"{path}, the settings of the table, is damaged; restore it from a backup, or move {path.parent} away if "
            "the table has no rows yet"
        )
    return TableSettings(**record.settled) if record is not None else None


def save_settings(state: Path, settings: TableSettings) -> None:
    """Write the settings of a table. Raises: ConfigError, another first start has written its settings meanwhile."""
    path = state / "table.json"
    with suppress(ValueError, TypeError, FileNotFoundError):
        if TableSettings(**read_sealed(path)).writer != settings.writer:
            raise ConfigError(
                f"another run has begun the table of {state} at the same time; start this one again when the other "
                "one has ended"
            )
    write_sealed(path, settings.to_json(), indent=2)


def state_folder(root: Path | Address) -> Path:
    if isinstance(root, Address):
        return root.state
    return root.with_name(f"{root.name}.state")
