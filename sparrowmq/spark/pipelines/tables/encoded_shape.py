"""The modes `avro` and `protobuf`: a column for each field of the schemas that the bodies have.

    bodies -> their heads, with counts -> the schemas, from the registry or a file -> columns -> rows, in the workers

The driver finds the heads of a batch, and asks the registry. It stores the schemas of each batch before it writes a row
of the batch, in `schemas.json` of the state:

    batch     the last batch for which the registry was asked
    known     schemas by id; an id never changes its schema
    missing   ids that had no usable schema in that batch, and the reasons

Spark repeats a batch after a crash. If the registry got a schema in between, a message could be in neither table: its
rows were written before, and its error would not be. So a repeated batch does not ask the registry. The next batch asks
again for missing ids. While the registry is away, a batch fails and is tried again.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import DataType

from sparrowmq.errors import BadStore, ConfigError, InvalidSchema
from sparrowmq.schemas.avro import parse_schema
from sparrowmq.schemas.protobuf import ProtobufFile, compile_file, compile_schema
from sparrowmq.schemas.registry import AVRO, PROTOBUF, RegistryClient, Schema
from sparrowmq.spark.pipelines.lake.partitioning import Partitioning
from sparrowmq.spark.pipelines.running.folders import read_sealed, write_sealed
from sparrowmq.spark.pipelines.tables.encoded_bodies import (
    NO_SCHEMA_ID,
    BodyHead,
    Columns,
    EncodedReader,
    Encoding,
    SchemaSource,
    add_columns,
    count_heads,
    frequent_heads,
)
from sparrowmq.spark.pipelines.tables.json_bodies import BODY, MAX_COLUMNS
from sparrowmq.spark.pipelines.tables.partition_columns import pin_types
from sparrowmq.spark.pipelines.tables.row_shapes import OWN_COLUMNS, Objects
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_NEW_SCHEMAS: Final = 1000  # ids for which one batch asks: any sender can invent more
SCHEMA_KINDS: Final = {"avro": AVRO, "protobuf": PROTOBUF}
ENCODED_MODES: Final = tuple(SCHEMA_KINDS)


SchemaLookup = Callable[[int], SchemaSource]


@dataclass
class _KnownSchemas:
    batch: int = -1
    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class BatchSchemas:
    """The schemas of a table's batches, kept in `path`; `lookup` raises InvalidSchema if there is none."""

    def __init__(self, lookup: SchemaLookup, path: Path | None) -> None:
        self._lookup = lookup
        self._path = path
        self._state = _read(path) if path is not None and path.exists() else _KnownSchemas()

    def schemas_for(self, batch: int, ids: Iterable[int]) -> tuple[Mapping[int, SchemaSource], Mapping[int, str]]:
        """Return the schemas of a batch, at least of the first `ids`, and why some have none. Raises: NetworkError."""
        state, wanted_ids = self._state, list(ids)
        if batch > state.batch or self._path is None:
            new_ids = [
                schema_id for schema_id in wanted_ids if str(schema_id) not in state.known or schema_id == NO_SCHEMA_ID
            ]
            if new_ids:
                self._ask_registry(batch, new_ids[:MAX_NEW_SCHEMAS])
        known = {
            schema_id: _schema_source(state.known[str(schema_id)])
            for schema_id in wanted_ids
            if str(schema_id) in state.known
        }
        return known, {
            int(schema_id): reason for schema_id, reason in state.missing.items() if int(schema_id) not in known
        }

    def _ask_registry(self, batch: int, ids: Iterable[int]) -> None:
        state = self._state
        stored = json.dumps(asdict(state))
        schemas, missing = {}, {}
        for schema_id in ids:
            try:
                schemas[str(schema_id)] = asdict(self._lookup(schema_id))
            except InvalidSchema as error:
                missing[str(schema_id)] = str(error)
        state.batch, state.missing = batch, missing
        state.known |= schemas
        if self._path is not None and json.dumps(asdict(state)) != stored:
            write_sealed(self._path, asdict(state))


def _read(path: Path) -> _KnownSchemas:
    try:
        return _KnownSchemas(**read_sealed(path))
    except (ValueError, TypeError):
        raise BadStore(
            f"{path}, the schemas of the last batch, is damaged; restore it from a backup, or remove it: then the "
            "registry is asked for them again"
        ) from None


def _schema_source(stored: Mapping[str, Any]) -> SchemaSource:
    references = tuple((name, text) for name, text in stored["references"])
    return SchemaSource(stored["kind"], stored["text"], references, stored["message"])


def body_settings(
    mode: str, registry: str | None, schema_file: str | Path | None, message: str | None
) -> dict[str, Any] | None:
    """Return the settings of a table about the bodies of a mode; None if it needs none. Raises: ConfigError."""
    if mode not in ENCODED_MODES:
        if registry or schema_file or message:
            raise ConfigError("a registry, a schema's file and a message go with mode avro or protobuf only")
        return None
    if (registry is None) == (schema_file is None):
        raise ConfigError(f"mode {mode} needs the address of a schema registry, or the file of a schema")
    if message is not None and (mode == "avro" or registry is not None):
        raise ConfigError("a message goes with mode protobuf and a schema's file; a registry's bodies name theirs")
    _check_installed(mode)
    if registry is not None:
        return {"registry": RegistryClient(registry).address}
    source = _avro_file(Path(str(schema_file))) if mode == "avro" else _protobuf_file(Path(str(schema_file)), message)
    return {"kind": source.kind, "text": source.text, "message": source.message}


def _check_installed(mode: str) -> None:
    """Raises: ConfigError, a package is missing; workers need the same ones, without protoc."""
    packages = ("fastavro",) if mode == "avro" else ("google", "grpc_tools")
    if any(find_spec(name) is None for name in packages):
        raise ConfigError(f"mode {mode} needs more packages: pip install 'sparrowmq[schemas]'")


def _avro_file(path: Path) -> SchemaSource:
    try:
        schema = Schema(AVRO, path.read_text(encoding="utf-8"))
        parse_schema(schema)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the schema cannot be read ({error})") from None
    except InvalidSchema as error:
        raise ConfigError(f"{path}: {error}") from None
    return SchemaSource(AVRO, schema.text)


def _protobuf_file(path: Path, message: str | None) -> SchemaSource:
    compiled = compile_file(path)
    name = ProtobufFile(compiled).message_named(message).full_name
    return SchemaSource(PROTOBUF, base64.b64encode(compiled).decode(), message=name)


def schema_lookup(mode: str, bodies: Mapping[str, Any]) -> SchemaLookup:
    """Return a function that finds a schema by its id, in the form for workers. Raises: ConfigError."""
    if "registry" not in bodies:
        return lambda schema_id: SchemaSource(bodies["kind"], bodies["text"], message=bodies["message"])
    client = RegistryClient(bodies["registry"])

    def look_up(schema_id: int) -> SchemaSource:
        schema = client.schema(schema_id)
        if schema.kind != SCHEMA_KINDS[mode]:
            raise InvalidSchema(f"it is of the type {schema.kind}, and bodies of this table are {SCHEMA_KINDS[mode]}")
        if mode == "avro":
            parse_schema(schema)
            return SchemaSource(AVRO, schema.text, schema.references)
        return SchemaSource(PROTOBUF, base64.b64encode(compile_schema(schema)).decode())

    return look_up


Heads = Iterable[tuple[int, Sequence[int], int]]


class EncodedRows(Objects):
    """Bodies in Avro or Protobuf, with a column for each of `fields`."""

    def __init__(self, fields: Mapping[str, str], encoding: Encoding, partitioning: Partitioning) -> None:
        super().__init__(fields, is_closed=False, partitioning=partitioning)
        self.encoding = encoding

    def reader(self, kinds: Mapping[str, DataType], added: Sequence[pa.Field]) -> EncodedReader:
        return EncodedReader(self.encoding, kinds, added, (*OWN_COLUMNS, *self.partitioning.derived_names))


class EncodedBodies:
    """The shapes of the batches of one table. `path`: of the file that keeps their schemas; None keeps nothing."""

    def __init__(self, settings: TableSettings, path: Path | None) -> None:
        assert settings.bodies is not None, "a table of encoded bodies knows their schemas"
        self._settings = settings
        self._is_framed = "registry" in settings.bodies
        self._schemas = BatchSchemas(schema_lookup(settings.mode, settings.bodies), path)
        self._empty_encoding = Encoding(settings.mode, self._is_framed, key=settings.key)
        self.known_encoding = self._empty_encoding  # of the batches of this process

    def shape(self, messages: DataFrame, batch: int) -> EncodedRows:
        """Return the shape of a batch, with the columns that its schemas add. Raises: NetworkError; ConfigError."""
        parts = (
            messages.select(BODY)
            .mapInArrow(partial(_count_batch_heads, self._empty_encoding), "found string")
            .collect()
        )
        return self.shape_for_heads(batch, [json.loads(part.found) for part in parts])

    def grown_shape(
        self, used: Encoding, fields: Mapping[str, str] | None, batch: int, parts: Sequence[Heads]
    ) -> EncodedRows | None:
        """Return the shape of a batch if it needs more than was used; `fields` is None if it can have no others."""
        shape = self.shape_for_heads(batch, parts)
        encoding = shape.encoding
        self.known_encoding = replace(self.known_encoding, schemas={**self.known_encoding.schemas, **encoding.schemas})
        ids = {schema_id for part in parts for schema_id, _, _ in part}
        is_used = all(
            encoding.schemas.get(schema_id) == used.schemas.get(schema_id)
            and encoding.missing.get(schema_id) == used.missing.get(schema_id)
            for schema_id in ids
        )
        return None if is_used and fields in (None, shape.fields) else shape

    def shape_for_heads(self, batch: int, parts: Iterable[Heads]) -> EncodedRows:
        """Return the shape of a batch whose bodies have these heads. Raises: as `shape`."""
        heads: Counter[BodyHead] = Counter()
        ids: Counter[int] = Counter()
        for schema_id, indexes, count in (head for part in parts for head in part):
            heads[schema_id, tuple(indexes)] += count
            ids[schema_id] += count
        by_count = sorted(ids, key=lambda schema_id: (-ids[schema_id], schema_id))
        schemas, missing = self._schemas.schemas_for(batch, by_count)
        encoding = replace(self._empty_encoding, schemas=schemas, missing=missing)
        columns = list(_schema_columns(encoding, sorted(heads)))
        settings = self._settings
        fields = add_columns(settings.fields, columns, settings.own_columns, MAX_COLUMNS)
        fields = pin_types(settings.partitioning, settings.fields, fields)
        return EncodedRows(fields, encoding, settings.partitioning)


def _schema_columns(encoding: Encoding, heads: Iterable[BodyHead]) -> Iterator[Columns]:
    for head in heads:
        with suppress(InvalidSchema):  # which is the reason of each of its bodies
            yield encoding.columns(head)


def _count_batch_heads(encoding: Encoding, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    heads: Counter[BodyHead] = Counter()
    count_heads(encoding, (body for batch in batches for body in batch.column(BODY).to_pylist()), heads)
    yield pa.RecordBatch.from_pydict({"found": [json.dumps(frequent_heads(heads))]})
