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
from sparrowmq.spark.pipelines.lake.address import Address, Catalog, root_of
from sparrowmq.spark.pipelines.lake.lake import OWN_FOLDER, record_at
from sparrowmq.spark.pipelines.lake.parquet import commits_at
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Partitioning
from sparrowmq.spark.pipelines.lake.spark_reader import read_table
from sparrowmq.spark.pipelines.lake.widening import fits
from sparrowmq.spark.pipelines.running.folders import demand_same, keep_sealed, locked, read_sealed
from sparrowmq.spark.pipelines.tables.ddl import type_of
from sparrowmq.spark.pipelines.tables.json_bodies import WIDEN
from sparrowmq.spark.pipelines.tables.partition_columns import fault_of_key, partition_kinds
from sparrowmq.spark.pipelines.tables.progress import parsed
from sparrowmq.spark.pipelines.tables.row_shapes import OWN, Objects, Raw, Shape, Whole, arrow_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrowmq.spark.pipelines.running.runner import Runner


_STEADY_S: Final = 30.0  # for files of a batch or a merge to get to their places
_LOOK_S: Final = 0.1


@dataclass
class Settled:
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
    def own(self) -> tuple[str, ...]:
        """The columns that the table has beside those of bodies."""
        return (*OWN, *self.partitioning.derived)

    def said(self) -> dict[str, Any]:
        """The settings as files have them; those of earlier releases lack defaults of later ones."""
        found = asdict(self)
        for name, default in (("partition", str(BY_DAY)), ("type_changes", WIDEN)):
            if found[name] == default:
                del found[name]
        return found

    def at(self, root: Path | Address) -> Settled:
        """The same, at a place. Raises: ConfigError, a catalog goes with Iceberg only."""
        if not isinstance(root, Address):
            return self
        if root.catalog is not None and self.format != "iceberg":
            raise ConfigError(f"a catalog goes with format iceberg, not with {self.format}")
        return replace(self, address=root.url, catalog=None if root.catalog is None else str(root.catalog))

    def shape(self) -> Shape:
        match self.mode:
            case "raw":
                return Raw()
            case "whole":
                return Whole()
        return self.objects()

    def objects(self, fields: Mapping[str, str] | None = None) -> Objects:
        """The shape of rows in the modes json and schema; with other columns than now if there are `fields`."""
        fields = self.fields if fields is None else fields
        return Objects(fields, is_closed=self.mode == "schema", depth=self.depth, partitioning=self.partitioning)

    def begins(self) -> dict[MessageQueue, int]:
        """The first offset of each queue that the table takes from brokers; a queue made later has none."""
        return {
            MessageQueue(topic, broker, int(queue)): offset
            for topic, brokers in (self.begin or {}).items()
            for broker, queues in brokers.items()
            for queue, offset in queues.items()
        }


def demand_no_key(root: Path | Address, settled: Settled, what: str) -> None:
    """Raises: ConfigError, older rows would come behind newer ones of their keys."""
    if settled.key is not None:
        raise ConfigError(
            f"{root} has one row for each {settled.key}, and {what} would put older rows over newer ones; only "
            "`sparrowmq lake` writes to it: send the messages to its topic again"
        )


def with_usable_key(settled: Settled) -> Settled:
    """Return the settings of a table; of a key that a schema of bodies has made unusable only the type is forgotten.

    Raises: ConfigError, the schema that a user wrote gives the key another type than that of a key.
    """
    key = settled.key
    why = fault_of_key(key, type_of(settled.fields[key])) if key in settled.fields else ""
    if not why:
        return settled
    if settled.schema is not None:
        raise ConfigError(why)
    return replace(settled, fields={name: ddl for name, ddl in settled.fields.items() if name != key})


@contextmanager
def held(root: Path | Address, runner: Runner, name: str = "") -> Iterator[None]:
    """Hold the state of a table, and a table in a folder itself: a copy of the state would allow a second run.

    Raises: ConfigError, as `Runner.at_work`.
    """
    here = locked(root / OWN_FOLDER) if isinstance(root, Path) else nullcontext()
    with runner.at_work(state_of(root), name), here:
        yield


def place_of(
    table: str | Path, state: str | Path | None = None, catalog_options: Mapping[str, str] | None = None
) -> Path | Address:
    """The place of a table that was begun: its folder, or its address with its catalog. Raises: ConfigError."""
    root = root_of(table, state)
    settled = begun(root)
    if settled is None or settled.address is None:
        return root
    given = root.url if isinstance(root, Address) else root.as_uri()
    demand_same(f"the table of {state_of(root)}", {"address": settled.address}, {"address": given})
    catalog = None
    if settled.catalog is not None:
        name, _, known_as = settled.catalog.partition(":")
        catalog = Catalog(name, known_as, dict(catalog_options or {}))
    return Address(settled.address, state_of(root), catalog)


def settle(root: Path | Address, settled: Settled) -> Settled:
    """Return the settings of the first start; this is the first start if there are none. Raises: ConfigError."""
    begun = begun_at(root, settled)
    if begun is None:
        keep(state_of(root), settled)
        return settled
    return begun


def begun_at(root: Path | Address, settled: Settled) -> Settled | None:
    """Return the settings of an earlier start, with a schema that may have got more and wider columns.

    Raises: ConfigError, they are others.
    """
    found = begun(root)
    if found is None:
        if _has_rows(root, settled.partitioning):
            raise ConfigError(
                f"{root} has rows, but {state_of(root)} is gone, so it is not known which messages they are; restore "
                "it, or name another folder"
            )
        return None
    what = f"the table at {root}"
    fixed = ("topic", "format", "mode", "address", "catalog", "key", "deletes")
    demand_same(what, asdict(found), {name: getattr(settled, name) for name in fixed})
    if found.partition != settled.partition:
        raise ConfigError(
            f"{what} was begun with the partition {found.partition}, not {settled.partition}, and all its rows must be "
            f"divided alike; write the partition `{found.partition}`, or name another folder"
        )
    if ("registry" in (found.bodies or {})) != ("registry" in (settled.bodies or {})):
        raise ConfigError(
            f"the table at {root} was begun {'with' if found.bodies and 'registry' in found.bodies else 'without'} "
            "a registry, and its bodies are read accordingly; name another folder"
        )
    found.bodies = settled.bodies  # a registry may move, and a file may get new fields
    found.type_changes = settled.type_changes
    if found.schema == settled.schema:
        return found
    for each in found.partitioning.of_bodies:
        had, asked = found.fields.get(each.source), settled.fields.get(each.source)
        if asked is not None and had != asked:
            raise ConfigError(
                f"{what} is divided by {each}, so {each.source} stays {had}; name another folder for {asked}"
            )
    return replace(found, schema=settled.schema, fields=extended(what, found.fields, settled.fields))


def extended(what: str, known: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of a new schema. Raises: ConfigError, it lacks one of the columns `known`, or changes one."""
    old, new = arrow_types(known), arrow_types(asked)
    for name, ddl in known.items():
        if name not in asked:
            raise ConfigError(
                f"{what} has the column {name}, and the schema lacks it; add `{name} {ddl}` to the schema"
            )
        if not fits(old[name], new[name]):
            raise ConfigError(
                f"{what} has the column {name} as {ddl}, which cannot become {asked[name]}: a type can only become "
                "one that holds all its values; name another folder for another type"
            )
    return dict(asked)


def _has_rows(root: Path | Address, partitioning: Partitioning) -> bool:
    """Whether a folder of this machine has rows; at other addresses the table itself names its state."""
    folder = root.folder if isinstance(root, Address) else root
    return folder is not None and any(
        next(folder.glob(f"**/{each.pattern}"), None) is not None for each in (BY_DAY, partitioning)
    )


def read_begun(spark: SparkSession, root: Path | Address) -> DataFrame:
    """The rows of a table, in the partitions and types of its settings: of each batch all or none.

    Raises: ConfigError, as `read_table`, or a killed run has left a batch half done in a Parquet folder.
    """
    if (settled := begun(root)) is None:
        return read_table(spark, root)
    partitioning = settled.partitioning
    kinds = partition_kinds(partitioning, settled.fields)
    if isinstance(root, Address) or settled.format != "parquet":
        return read_table(spark, root, partitioning, kinds)
    until_s = time.monotonic() + _STEADY_S
    while time.monotonic() < until_s:
        commits = commits_at(root, state_of(root))
        if commits is None:
            time.sleep(_LOOK_S)
            continue
        rows = read_table(spark, root, partitioning, kinds)
        if commits_at(root, state_of(root)) == commits:
            return rows
    raise ConfigError(
        f"a run has begun to change the files of {root}, and is not done: if it was killed, start the pipeline that "
        "fills the table again, as that ends the change; then repeat this"
    )


def begun(root: Path | Address) -> Settled | None:
    """Return the settings of the table at `root`; None if there is no table. A table in a folder has them, too.

    Raises: BadStore, the settings are damaged, and the table does not have them.
    """
    path = state_of(root) / "table.json"
    is_there = path.exists()
    if is_there:
        with suppress(ValueError, TypeError):
            return Settled(**read_sealed(path))
    record = parsed(record_at(root)) if isinstance(root, Path) else None
    if record is None and is_there:
        raise BadStore(
            f"{path}, the settings of the table, is damaged; restore it from a backup, or move {path.parent} away if "
            "the table has no rows yet"
        )
    return Settled(**record.settled) if record is not None else None


def keep(state: Path, settled: Settled) -> None:
    """Write the settings of a table.

    Raises: ConfigError, another first start has written its own since this one has looked.
    """
    path = state / "table.json"
    with suppress(ValueError, TypeError, FileNotFoundError):
        if Settled(**read_sealed(path)).writer != settled.writer:
            raise ConfigError(
                f"another run has begun the table of {state} at the same time; start this one again when the other "
                "one has ended"
            )
    keep_sealed(path, settled.said(), indent=2)


def state_of(root: Path | Address) -> Path:
    if isinstance(root, Address):
        return root.state
    return root.with_name(f"{root.name}.state")
