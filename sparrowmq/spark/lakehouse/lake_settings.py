"""The file of `sparrowmq lake`: which topics become tables, and how.

    name_server = "10.0.0.1:9876"
    metrics = "127.0.0.1:5560"

    [defaults]                      # of all tables
    to = "/lake/{topic}"
    format = "delta"

    [tables."orders-.*"]            # a pattern of topics; the first section that fits a topic has it
    mode = "json"
    keep_days = 90

    [tables."tmp-.*"]
    skip = true

    [tables.".*"]

A pattern fits whole names. System, retry and dead-letter topics never fit.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields, replace
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from glob import escape, glob
from pathlib import Path
from typing import Any, Final, TypeVar

from sparrowmq.errors import ConfigError, InvalidSchema
from sparrowmq.settings.setting_kinds import Kind, duration, size
from sparrowmq.spark.exposed import check_metrics_address
from sparrowmq.spark.options import DIVIDER, SourceOptions, check_reading, matches_pattern, parse
from sparrowmq.spark.pipelines.lake.address import Address, Catalog, table_root
from sparrowmq.spark.pipelines.lake.lake import FILE_BYTES, FORMATS
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Partitioning
from sparrowmq.spark.pipelines.running.folders import scheme_of
from sparrowmq.spark.pipelines.table import FILE_SIZE
from sparrowmq.spark.pipelines.tables.ddl import names_in
from sparrowmq.spark.pipelines.tables.encoded_bodies import NO_SCHEMA_ID, Encoding
from sparrowmq.spark.pipelines.tables.encoded_shape import ENCODED_MODES, body_settings, schema_lookup
from sparrowmq.spark.pipelines.tables.json_bodies import ANY, MAX_DEPTH, WIDEN
from sparrowmq.spark.pipelines.tables.partition_columns import check_partition_columns, check_partition_types
from sparrowmq.spark.pipelines.tables.row_shapes import OWN_COLUMNS, check_names
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings, state_folder

TOPIC: Final = "{topic}"
_EXAMPLE_TOPIC: Final = "any-topic"  # in its place, to look for the folders of all topics
_PLACEHOLDER: Final = re.compile(r"\{\w*\}")
MODES: Final = ("raw", "json", "schema", *ENCODED_MODES)
# In the environment, so that the file has no secrets.
_ACCOUNT: Final = {"accessKey": "ROCKETMQ_ACCESS_KEY", "secretKey": "ROCKETMQ_SECRET_KEY"}
_YEAR_S: Final = 366 * 86_400

Settings = TypeVar("Settings")


def _setting(convert: Callable[[Any], Any], **options: Any) -> Any:
    return field(metadata={"convert": convert}, **options)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number above 0")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _convert_by(kind: Kind, expected: str) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        try:
            return int(kind.parse(_text(value)))
        except ValueError:
            raise ValueError(expected) from None

    return convert


_time: Final = _convert_by(duration("s", 0, _YEAR_S), 'a time with its unit, as "10s", "5m" or "1h"')
_pause: Final = _convert_by(duration("s", 1, _YEAR_S), 'a time of a second or more, as "5s" or "1m"')
_size: Final = _convert_by(size(1 << 20, 1 << 40), 'a size of 1 MiB or more, as "256MiB"')
_file_size: Final = _convert_by(FILE_SIZE, 'a size from 64 MiB to 512 MiB, as "256MiB"')


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError('a table of texts, as {tags = "paid"}')
    return dict(value)


def _partition(value: Any) -> str:
    fields = value if isinstance(value, list) and value else [value]
    return str(Partitioning.parse(", ".join(map(_text, fields))))


def _one_of(*choices: str) -> Callable[[Any], str]:
    def convert(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return str(value)

    return convert


# Once for a section: protoc compiles the files of Protobuf.
_body_settings = lru_cache(body_settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionSettings:
    """The settings of the tables of one section; docs/use/lake.md describes each.

    `{topic}` in a folder, an address or a name is the topic. `key` is the column of which each value has one row;
    `deletes` is the property or field by which a message deletes it, and files that such batches replace stay for
    `replaced_stay_s`. `every_s` is the least time between two batches of a table (0: each look at the brokers).
    Without `keep_days` all days stay. With 0 for `compact_every_s`, small files are never merged.
    """

    to: str = _setting(_text, default="")
    state: str | None = _setting(_text, default=None)
    catalog: str | None = _setting(_text, default=None)
    table: str | None = _setting(_text, default=None)
    catalog_options: Mapping[str, str] = _setting(_texts, default_factory=dict)
    format: str = _setting(_one_of(*FORMATS), default="parquet")
    mode: str = _setting(_one_of(*MODES), default="raw")
    schema: str | None = _setting(_text, default=None)
    registry: str | None = _setting(_text, default=None)
    schema_file: str | None = _setting(_text, default=None)
    message: str | None = _setting(_text, default=None)
    key: str | None = _setting(_text, default=None)
    deletes: str | None = _setting(_text, default=None)
    partition: str = _setting(_partition, default=str(BY_DAY))
    type_changes: str = _setting(_one_of(WIDEN, ANY), default=WIDEN)
    replaced_stay_s: int = _setting(_time, default=600)
    every_s: int = _setting(_time, default=0)
    rows_per_s: int | None = _setting(_number, default=None)
    keep_days: int | None = _setting(_number, default=None)
    compact_every_s: int = _setting(_time, default=3600)
    file_size: int = _setting(_file_size, default=FILE_BYTES)
    options: Mapping[str, str] = _setting(_texts, default_factory=dict)
    skip: bool = _setting(_flag, default=False)

    def table_settings(self, topic: str, fields: Mapping[str, str] | None = None) -> TableSettings:
        """Return the settings for the first start of a topic's table. Raises: ConfigError."""
        bodies = _body_settings(self.mode, self.registry, self.schema_file, self.message)
        depth = MAX_DEPTH if self.mode == "json" else 0
        settings = TableSettings(
            topic, self.format, self.mode, self.schema, dict(fields or {}), bodies=bodies, depth=depth
        )
        settings = replace(settings, key=self.key, deletes=self.deletes, partition=self.partition)
        return replace(settings, type_changes=self.type_changes).at_root(self.root(topic))

    def root(self, topic: str) -> Path | Address:
        """Return the path or address of a topic's table. Raises: ConfigError, as `table_root`."""
        to, state, table = (text and text.replace(TOPIC, topic) for text in (self.to, self.state, self.table))
        catalog = Catalog(self.catalog, table, self.catalog_options) if self.catalog and table else None
        return table_root(to or "", state, catalog)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSettings:
    """The whole file: `sections` are patterns and their settings, in the order of the file.

    `metrics` is the address of the status page and the metrics. One round reads `rows_per_round` and `bytes_per_round`
    at most, over all tables, and should take `round_s`; slow machines get smaller rounds. `spark` are settings of the
    session, by Spark's names.
    """

    name_server: str = _setting(_text)
    metrics: str | None = _setting(_text, default=None)
    insecure: bool = _setting(_flag, default=False)
    every_s: int = _setting(_pause, default=5)
    new_topics_every_s: int = _setting(_time, default=30)
    rows_per_round: int = _setting(_number, default=250_000)
    bytes_per_round: int = _setting(_size, default=256 << 20)
    round_s: int = _setting(_pause, default=5)
    master: str | None = _setting(_text, default=None)
    spark: Mapping[str, str] = _setting(_texts, default_factory=dict)
    sections: tuple[tuple[re.Pattern[str], SectionSettings], ...] = ()

    def section_for(self, topic: str) -> SectionSettings | None:
        """Return the settings of a topic; None if the topic does not become a table."""
        for pattern, settings in self.sections:
            if matches_pattern(pattern, topic):
                return None if settings.skip else settings
        return None

    def states(self) -> dict[str, Path]:
        """Return the topics that already have a table, with the state folder of each."""
        states: dict[str, Path] = {}
        for _, section in self.sections:
            folders = (
                []
                if section.skip
                else glob(escape(str(state_folder(section.root(_EXAMPLE_TOPIC)))).replace(_EXAMPLE_TOPIC, "*"))
            )
            for state in map(Path, folders):
                with suppress(OSError, ValueError, KeyError, TypeError):
                    topic = json.loads((state / "table.json").read_text())["topic"]
                    settings = self.section_for(topic)
                    if settings is not None and state_folder(settings.root(topic)) == state:
                        states[topic] = state
        return states

    def source(self, settings: SectionSettings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the options of the source for one section, with the account from the environment."""
        account = {name: environ[variable] for name, variable in _ACCOUNT.items() if environ.get(variable)}
        return {**account, **settings.options, "nameServer": self.name_server}


def read_settings(path: Path) -> LakeSettings:
    """Read a file of settings. Raises: ConfigError, with the key and its allowed values."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors write its mark first
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; name the file of settings") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from None
    return settings_of(values, str(path))


def settings_of(values: Mapping[str, Any], context: str) -> LakeSettings:
    """Return the settings of a parsed file; errors begin with `context`. Raises: ConfigError."""
    lake_values = dict(values)
    defaults, tables = lake_values.pop("defaults", {}), lake_values.pop("tables", None)
    if not isinstance(tables, dict) or not tables:
        raise ConfigError(
            f'{context} names no topics; write a section for a pattern of topics, as [tables."orders-.*"]'
        )
    sections = [
        (_pattern(pattern, context), _read_section(defaults, section, f'{context}, [tables."{pattern}"]'))
        for pattern, section in tables.items()
    ]
    lake = _read_values(LakeSettings, lake_values, context, sections=tuple(sections))
    if lake.metrics is not None:
        check_metrics_address(lake.metrics, insecure=lake.insecure)
    for pattern, settings in sections:
        _check(lake, settings, f'{context}, [tables."{pattern.pattern}"]')
    return lake


def _pattern(pattern: str, context: str) -> re.Pattern[str]:
    if len(parts := DIVIDER.split(pattern)) > 1:
        joined = "|".join(part.strip() for part in parts)
        raise ConfigError(f'{context}: [tables."{pattern}"] matches no topic; for several write [tables."{joined}"]')
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f'{context}: [tables."{pattern}"] is no regular expression: {error}') from None


def _read_section(defaults: Any, section: Any, context: str) -> SectionSettings:
    for values in (defaults, section):
        if not isinstance(values, dict):
            raise ConfigError(f"{context} is no section of keys and values")
    removed = {name for name, value in section.items() if name in defaults and value == ""}
    merged = {name: value for name, value in {**defaults, **section}.items() if name not in removed}
    return _read_values(SectionSettings, merged, context)


def _check(lake: LakeSettings, settings: SectionSettings, context: str) -> None:
    if settings.skip:
        return
    if TOPIC not in settings.to:
        raise ConfigError(f'{context}: write the folder of its tables, as to = "/lake/{TOPIC}"')
    _check_location(settings, context)
    _check_key(settings, context)
    _check_days(settings, context)
    if (settings.mode == "schema") != (settings.schema is not None):
        raise ConfigError(f"{context}: mode schema and a schema, as `id bigint, name string`, go together")
    try:
        _check_columns(settings.table_settings("t"))
        check_reading(settings.options)
        parse(SourceOptions, {**lake.source(settings, {}), "topic": "t"}).check_stream()
    except ConfigError as error:
        raise ConfigError(f"{context}: {error}") from None


def _check_location(settings: SectionSettings, context: str) -> None:
    """Raises: ConfigError, two tables would share a state or a name, an address has no state, or a word is unknown."""
    for place in (settings.to, settings.state or "", settings.table or ""):
        for word in _PLACEHOLDER.findall(place):
            if word != TOPIC:
                raise ConfigError(f"{context}: {word} in {place} has no meaning; only {TOPIC} has one")
    if scheme_of(settings.to) is not None and settings.state is None:
        raise ConfigError(
            f'{context}: {settings.to} is an address; name a folder of this machine too, as state = "/var/lib/{TOPIC}"'
        )
    if settings.state is not None and TOPIC not in settings.state:
        raise ConfigError(f'{context}: each table has its own state, as state = "/var/lib/{TOPIC}"')
    if (settings.catalog is None) != (settings.table is None) or TOPIC not in (settings.table or TOPIC):
        raise ConfigError(
            f'{context}: a catalog and the names of the tables in it go together, as catalog = "prod" and '
            f'table = "shop.{TOPIC}"'
        )
    if settings.catalog_options and settings.catalog is None:
        raise ConfigError(f"{context}: catalog_options go with a catalog; write catalog and table, too")
    if settings.catalog is not None and settings.format != "iceberg":
        raise ConfigError(
            f"{context}: a catalog goes with format iceberg, not with {settings.format}; write that format, or "
            'catalog = "" and table = "" to have no catalog here'
        )


def _check_days(settings: SectionSettings, context: str) -> None:
    if settings.keep_days is not None:
        try:
            Partitioning.parse(settings.partition).period_start(date.max)
        except ConfigError as error:
            raise ConfigError(f"{context}: {error}") from None


def _check_key(settings: SectionSettings, context: str) -> None:
    if settings.key is None:
        if settings.deletes is not None:
            raise ConfigError(f'{context}: deletes goes with a key; write the column, as key = "id"')
        return
    if settings.mode == "raw" or settings.format == "parquet":
        raise ConfigError(
            f"{context}: a key is a column of bodies, and rows are replaced in Delta and Iceberg tables; write another "
            'mode than raw, and format = "delta" or "iceberg"'
        )


def _check_columns(table: TableSettings) -> None:
    """Raises: ConfigError, the key or the partition names no column, or one of a wrong type."""
    partitioning, columns = table.partitioning, None
    if table.schema is not None:
        check_names(table.schema, names_in(table.schema))
    if table.key is not None or partitioning.body_fields:
        columns = _columns_of(table)
    if table.key is not None:
        _check_key_column(table.key, columns)
    check_partition_columns(partitioning, table.mode, columns, table.key)
    if isinstance(columns, Mapping):
        check_partition_types(partitioning, columns)


def _check_key_column(key: str, names: Collection[str] | None) -> None:
    if key.lower() in OWN_COLUMNS:
        raise ConfigError(f"{key} is a column that each table has itself; choose one of the bodies as the key")
    if names is not None and key not in names:
        similar = [name for name in names if name.lower() == key.lower()]
        hint = f"did you mean {similar[0]}?" if similar else f"it has {', '.join(list(names)[:20])}"
        raise ConfigError(f"the key {key} is no column of the schema; {hint}")


def _columns_of(table: TableSettings) -> Collection[str] | None:
    """Return the columns of bodies, with types if known; None if only bodies can tell."""
    if table.schema is not None:
        return names_in(table.schema)
    if table.bodies is None or "registry" in table.bodies:
        return None
    source = schema_lookup(table.mode, table.bodies)(NO_SCHEMA_ID)
    try:
        return Encoding(table.mode, False, {NO_SCHEMA_ID: source}, key=table.key).columns((NO_SCHEMA_ID, ()))
    except InvalidSchema as error:
        raise ConfigError(f"the schema has no columns for a table: {error}") from None


def settings_in_files(kind: type[Any]) -> dict[str, Field[Any]]:
    """Return the settings of one class, by their names in files: times have no `_s` there."""
    return {
        entry.name.removesuffix("_s") if entry.metadata["convert"] in (_time, _pause) else entry.name: entry
        for entry in fields(kind)
        if "convert" in entry.metadata
    }


def _read_values(kind: type[Settings], values: Mapping[str, Any], context: str, **parsed: Any) -> Settings:
    settings = settings_in_files(kind)
    converted: dict[str, Any] = {}
    for name, value in values.items():
        if name not in settings:
            close = get_close_matches(name, settings, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(settings)}"
            raise ConfigError(f"{context}: there is no setting {name}; {hint}")
        try:
            converted[settings[name].name] = settings[name].metadata["convert"](value)
        except ConfigError as error:
            raise ConfigError(f"{context}: {error}") from None
        except ValueError as error:
            raise ConfigError(f"{context}: {name} = {value!r} must be {error}") from None
    if kind is LakeSettings and "name_server" not in converted:
        if not os.environ.get("NAMESRV_ADDR"):
            raise ConfigError(f'{context}: write name_server = "host:9876", or set NAMESRV_ADDR')
        converted["name_server"] = os.environ["NAMESRV_ADDR"]
    return kind(**converted, **parsed)
