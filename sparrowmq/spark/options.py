"""The options of `format("rocketmq")`: their names, accepted values, and results.

One table for each direction and one for stored logs, written as dataclasses: a field is an option, its metadata has the
names that users write. A name may be written in any case, and Kafka's spellings are accepted, so that a notebook moves
by changing its format. An unknown option or value is an error that says what to write instead: a silently ignored
option loses data.

The same options reach the source and the sink when a SQL table is both read and written. So each direction ignores the
options that belong only to the other. Where a query has one direction only, `check_reading` and `check_sending` refuse
them, as they would have no effect.
"""

# ruff: noqa: RUF009 - `option` makes a dataclass field
from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias, TypeVar

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import check_group, check_topic, group_of, is_system_topic
from sparrowmq.protocol.subscription import check_tags

OffsetSpec: TypeAlias = Literal["earliest", "latest", "group"] | dict[MessageQueue, int]

EARLIEST: Final = -2  # in offsets JSON, as Kafka has it
LATEST: Final = -1
ANY_BROKER: Final = ""  # of a queue in Kafka's form of offsets, which names no broker

_MAX_LONG: Final = 2**63 - 1  # that a request holds
_MAX_TIME_MS: Final = 253_402_300_799_999  # the end of the year 9999: later are microseconds
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_OFFSETS_SHAPE: Final = '{"topic":{"broker":{"0":123,"1":-1}}}, where -2 is the earliest and -1 the latest'
DIVIDER: Final = re.compile(r",(?![^\[{(]*[\]})])")  # a comma, but not one within brackets
_ASSIGN_SHAPE: Final = '{"topic":{"broker":[0,1]}}'


# Parsers of values: text in, value out, or a ValueError with advice.


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def tag_expression(value: str) -> str:
    """A tag expression. Raises: InvalidMessage, as `check_tags`."""
    check_tags(text(value))
    return text(value)


def folder(value: str) -> str:
    """A file or folder of this machine, also as file:///path."""
    path = re.sub(r"^file:(//)?(?=/)", "", text(value))
    if re.match(r"[a-zA-Z][\w+.-]*:", path):
        raise ValueError("write a folder of this machine; mount other folders, or copy them here")
    return path


def flag(value: str) -> bool:
    return {"true": True, "false": False}[one_of("true", "false")(value)]


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.strip().lower() not in choices:
            raise ValueError(f"write {' or '.join(choices)}")
        return value.strip().lower()

    return parse


def whole_between(minimum: int, maximum: int = _MAX_LONG) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,99}\s*", value) or not minimum <= int(value) <= maximum:
            is_long = len(value) > len(str(2**62))  # others know that there are larger numbers
            limit = f", at most {maximum}" * (maximum < 2**62 or is_long)
            raise ValueError(f"write a whole number of at least {minimum}{limit}")
        return int(value)

    return parse


def names(value: str) -> tuple[str, ...]:
    parts = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not parts:
        raise ValueError("write names with commas between them")
    return parts


def topic_names(value: str) -> tuple[str, ...]:
    return tuple(map(check_topic, names(value)))


def topic_name(value: str) -> str:
    return check_topic(text(value))


def group_name(value: str) -> str:
    return check_group(text(value))


def addresses(value: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in re.split(r"[;,]", value) if part.strip())
    with suppress(ConfigError):
        if parts and all(map(split_address, parts)):
            return parts
    raise ValueError("write host:port, several with semicolons between them")


def pattern(value: str) -> re.Pattern[str]:
    """A regular expression, or several as `a,b`: the name of a topic has no comma."""
    parts = [part.strip() for part in DIVIDER.split(value) if part.strip()]
    if not parts:
        raise ValueError("it is empty")
    try:
        return re.compile(parts[0] if len(parts) == 1 else "|".join(f"(?:{part})" for part in parts))
    except re.error as error:
        raise ValueError(f"it is not a regular expression: {error}") from None


def milliseconds(value: str) -> int:
    """A duration: "1500", "90s", "15m"."""
    match = re.fullmatch(r"\s*([0-9]{1,12})\s*(ms|s|m|h)?\s*", value)
    if not match:
        raise ValueError("write a duration, as 1500ms, 90s, 15m or 1h")
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]


class Instant(int):
    """A point in time in milliseconds, with its text in the option."""

    text: str


def instant(value: str) -> Instant:
    """A point in time: "1700000000000", or ISO-8601, by default in UTC."""
    parsed = Instant(_time_ms(value))
    parsed.text = value.strip()
    return parsed


def _time_ms(value: str) -> int:
    try:
        if re.fullmatch(r"\s*[0-9]+\s*", value):
            return whole_between(0, _MAX_TIME_MS)(value)
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError("write milliseconds since 1970, or a time as 2026-01-31T08:00:00Z") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def offsets(*words: str) -> Callable[[str], OffsetSpec]:
    def parse(value: str) -> Any:
        if value.strip().lower() in words:
            return value.strip().lower()
        if not value.lstrip().startswith("{"):
            raise ValueError(f"write {', '.join(words)} or JSON as {_OFFSETS_SHAPE}")
        return queue_numbers(value, EARLIEST)

    return parse


def queue_numbers(value: str, minimum: int = 0) -> dict[MessageQueue, int]:
    """{"topic":{"broker":{"queue id":number}}}, or Kafka's {"topic":{"partition":number}}"""
    numbers = {}
    for topic, name, inner in _topics_and_brokers(value, _OFFSETS_SHAPE):
        broker, queues = (name, inner) if isinstance(inner, dict) else (ANY_BROKER, {name: inner})
        for queue_id, number in queues.items():
            parsed_id = whole_number(queue_id)
            if parsed_id is None or type(number) is not int or not minimum <= number <= _MAX_LONG:
                raise ValueError(f"queue {queue_id!r} has {number!r}; write JSON as {_OFFSETS_SHAPE}")
            numbers[MessageQueue(topic, broker, parsed_id)] = number
    return numbers


def matches_pattern(pattern: re.Pattern[str], topic: str) -> bool:
    """Whether the option subscribePattern chooses a topic: system, retry and dead-letter topics have to be named."""
    return bool(pattern.fullmatch(topic)) and not is_system_topic(topic) and group_of(topic) is None


def check_brokers(places: Mapping[MessageQueue, int]) -> None:
    """Raises: ConfigError, offsets or times have Kafka's form."""
    for queue, number in places.items():
        if queue.broker_name == ANY_BROKER:
            form = json.dumps({queue.topic: {"broker": {queue.queue_id: number}}})
            raise ConfigError(
                f"offsets or times of {queue.topic} name no broker; write JSON as {form}, or set kafkaCompat=true if "
                "the topic is on one broker"
            )


def queue_ids(value: str) -> frozenset[MessageQueue]:
    """{"topic":{"broker":[queue ids]}}"""
    queues: set[MessageQueue] = set()
    for topic, broker, ids in _topics_and_brokers(value, _ASSIGN_SHAPE):
        if not isinstance(ids, list) or not all(type(number) is int and number >= 0 for number in ids):
            raise ValueError(f"{broker!r} has {ids!r}; write JSON as {_ASSIGN_SHAPE}")
        queues.update(MessageQueue(topic, broker, number) for number in ids)
    if not queues:
        raise ValueError(f"it names no queue; write JSON as {_ASSIGN_SHAPE}")
    return frozenset(queues)


def _topics_and_brokers(value: str, shape: str) -> list[tuple[str, str, object]]:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error}); write {shape}") from None
    if not isinstance(parsed, dict) or not all(isinstance(brokers, dict) for brokers in parsed.values()):
        raise ValueError(f"write JSON as {shape}")
    return [(topic, broker, inner) for topic, brokers in parsed.items() for broker, inner in brokers.items()]


def only_choice(supported: str, *later: str) -> Callable[[str], str]:
    """A choice of which only one works so far."""
    choose = one_of(supported, *later)

    def parse(value: str) -> str:
        if choose(value) != supported:
            raise ValueError(f"not supported yet; leave it at {supported}")
        return supported

    return parse


def unsupported(reason: str) -> Callable[[str], None]:
    """An option that other connectors have and this one has not."""

    def parse(value: str) -> None:
        raise ValueError(reason)

    return parse


# What Spark adds to a query's own options, and its catalog to a table's (TableCatalog.RESERVED_PROPERTIES).
_SPARK_OPTIONS: Final = frozenset(
    {"path", "checkpointlocation", "queryname", "header", "mergeschema", "serialization.format"}
    | {"comment", "collation", "location", "provider", "owner", "external", "is_managed_location"}
)

# What the sink promises, as users write it.
AT_LEAST_ONCE: Final = "at_least_once"
IDEMPOTENT: Final = "idempotent"
EXACTLY_ONCE: Final = "exactly_once"

_MAX_TIMEOUT_MS: Final = 2**31 - 1  # what can be waited for a socket: 24 days


def option(name: str, parse: Callable[[str], Any], default: Any = None, aliases: tuple[str, ...] = ()) -> Any:
    """A field of the tables below. `...` as the default makes the option required."""
    metadata = {"names": (name, *aliases), "parse": parse}
    return field(metadata=metadata) if default is ... else field(default=default, metadata=metadata)


def secret(name: str, aliases: tuple[str, ...] = ()) -> Any:
    """A field that is not shown where options are, as in logs and tracebacks."""
    return field(default=None, metadata={"names": (name, *aliases), "parse": text}, repr=False)


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Options of rows; the same whether brokers or files are read."""

    columns: tuple[str, ...] = option("columns", names, ())
    include_properties: bool = option("includeProperties", flag, True, ("includeHeaders",))
    include_internal: bool = option("includeInternal", flag, False)
    body_type: str = option("bodyType", one_of("binary", "string"), "binary")
    kafka_compat: bool = option("kafkaCompat", flag, False)
    decompress: bool = option("decompress", flag, True)
    fail_on_data_loss: bool = option("failOnDataLoss", flag, True)
    bad_records: str | None = option("badRecords", one_of("fail", "null", "dlq"))

    @property
    def fails_at_bad_records(self) -> bool:
        """Whether a damaged body ends the query; by default as lost rows do."""
        return self.fail_on_data_loss if self.bad_records is None else self.bad_records == "fail"


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Options to reach the brokers, for source and sink."""

    name_servers: tuple[str, ...] = option(
        "nameServer", addresses, ..., ("namesrvAddr", "kafka.bootstrap.servers", "rocketmq.client.endpoints")
    )
    access_key: str | None = option("accessKey", text, aliases=("rocketmq.client.accessKey",))
    secret_key: str | None = secret("secretKey", ("rocketmq.client.secretKey",))
    security_token: str | None = secret("securityToken")
    proxy: str = option("proxy", only_choice("remoting", "grpc"), "remoting")
    tls: bool = option("tls.enable", flag, False, ("useTLS",))
    tls_trust: str | None = option("tls.client.trustCertPath", text)
    tls_certificate: str | None = option("tls.client.certPath", text)
    tls_key: str | None = option("tls.client.keyPath", text)
    tls_key_password: str | None = secret("tls.client.keyPassword")
    tls_checks_server: bool = option("tls.client.authServer", flag, True)
    tls_checks_name: bool = option("tls.client.checkName", flag, True)
    namespace: None = option("namespace", unsupported("not supported yet; write topics as namespace%topic"))
    retries: int = option("fetchOffset.numRetries", whole_between(0), 10, ("retries",))
    retry_interval_ms: int = option("fetchOffset.retryIntervalMs", whole_between(0), 1000, ("retryIntervalMs",))
    outage_ms: int = option("outageTimeout", milliseconds, 15 * 60_000)
    rows_per_s: int | None = option("rowsPerSecondPerTask", whole_between(1))
    dlq_topic: str | None = option("dlqTopic", topic_name)

    def __post_init__(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            raise ConfigError("options accessKey and secretKey go together; give both or neither")
        if (self.tls_trust or self.tls_certificate) and not self.tls:
            raise ConfigError("options tls.client.* have no effect without tls.enable=true; add it")


@dataclass(frozen=True, kw_only=True)
class SourceOptions(ClusterOptions, RowOptions):
    """Options of the source. None is a default that depends on the kind of query."""

    topics: tuple[str, ...] = option("topic", topic_names, (), ("subscribe", "topics"))
    topic_pattern: re.Pattern[str] | None = option("subscribePattern", pattern)
    queues: frozenset[MessageQueue] = option("assign", queue_ids, frozenset())

    start: OffsetSpec | None = option("startingOffsets", offsets("earliest", "latest", "group"))
    end: OffsetSpec | None = option("endingOffsets", offsets("latest"))
    start_time_ms: int | None = option("startingTimestamp", instant)
    end_time_ms: int | None = option("endingTimestamp", instant)
    start_times_ms: dict[MessageQueue, int] | None = option("startingOffsetsByTimestamp", queue_numbers)
    end_times_ms: dict[MessageQueue, int] | None = option("endingOffsetsByTimestamp", queue_numbers)
    when_no_later: str = option("startingOffsetsByTimestampStrategy", one_of("error", "latest"), "error")
    new_queues: str = option("newQueueOffsets", one_of("earliest", "latest"), "earliest")

    max_rows: int | None = option("maxOffsetsPerTrigger", whole_between(1))
    max_bytes: int | None = option("maxBytesPerTrigger", whole_between(1))
    min_rows: int | None = option("minOffsetsPerTrigger", whole_between(1))
    max_delay_ms: int = option("maxTriggerDelay", milliseconds, 15 * 60_000)
    checkpoint: str | None = option("checkpointLocation", text)
    min_partitions: int = option("minPartitions", whole_between(1), 1)
    max_partitions: int | None = option("maxPartitions", whole_between(1))
    parallel_tasks: int | None = option("parallelTasks", whole_between(1))

    expression: str = option("subExpression", tag_expression, "*", ("tags", "filter.tag"))
    sql: str | None = option("filter.sql", text)
    group: str | None = option("group", group_name, None, ("kafka.group.id", "consumerGroup"))
    group_prefix: str = option("groupIdPrefix", group_name, "spark-rocketmq-source")
    commit_offsets: bool = option("commitOffsets", flag, False)

    transaction: str = option("transaction", only_choice("committed", "uncommitted"), "committed")
    pushdown: bool = option("pushdown", flag, False)

    pull_rows: int = option("pullBatchSize", whole_between(1, 65_536), 4096)
    pull_bytes: int = option("pullMaxBytes", whole_between(1024, 8 << 20), 1 << 20)
    pulls_in_flight: int = option("pullsInFlight", whole_between(1, 256), 16)
    pull_timeout_ms: int = option(
        "pullTimeoutMs", whole_between(1, _MAX_TIMEOUT_MS), 30_000, ("kafkaConsumer.pollTimeoutMs",)
    )

    def __post_init__(self) -> None:
        ClusterOptions.__post_init__(self)
        if self.bad_records == "dlq" and not self.dlq_topic:
            raise ConfigError("badRecords=dlq needs the option dlqTopic: where damaged messages go")
        chosen = [bool(self.topics), self.topic_pattern is not None, bool(self.queues)]
        if sum(chosen) != 1:
            raise ConfigError("say what to read with exactly one of the options topic, subscribePattern and assign")
        if self.expression != "*" and self.sql:
            raise ConfigError("options subExpression and filter.sql exclude each other")
        for places in (self.start, self.end, self.start_times_ms, self.end_times_ms):
            if isinstance(places, dict) and not self.kafka_compat:
                check_brokers(places)
        if not self.group and (self.start == "group" or self.commit_offsets):
            raise ConfigError(
                "startingOffsets=group and commitOffsets=true need the option group, a consumer group's name"
            )
        if self.max_partitions is not None and self.max_partitions < self.min_partitions:
            raise ConfigError(f"maxPartitions={self.max_partitions} is below minPartitions={self.min_partitions}")

    def reads(self, topic: str) -> bool:
        """Whether a query with these options reads a topic of this name, if there is one."""
        if self.topic_pattern is not None:
            return bool(self.topic_pattern.fullmatch(topic))
        return topic in self.topics or any(queue.topic == topic for queue in self.queues)

    def check_stream(self) -> None:
        """Raises: ConfigError, an option says where the query ends; a stream goes on."""
        if (self.end, self.end_time_ms, self.end_times_ms) != (None, None, None):
            raise ConfigError(
                "endingOffsets, endingTimestamp and endingOffsetsByTimestamp end a batch query, and not a stream; "
                "leave them out, and let Trigger.AvailableNow (--once) end it, or read a batch by spark.read"
            )


@dataclass(frozen=True, kw_only=True)
class StoredOptions(RowOptions):
    """Which log files to read without a broker, and what of them."""

    path: str = option("path", folder, ...)
    topics: tuple[str, ...] = option("topic", topic_names, (), ("subscribe", "topics"))
    topic_pattern: re.Pattern[str] | None = option("subscribePattern", pattern)
    broker_name: str | None = option("brokerName", text)
    expression: str = option("subExpression", tag_expression, "*", ("tags", "filter.tag"))
    start_time_ms: int | None = option("startingTimestamp", instant)
    end_time_ms: int | None = option("endingTimestamp", instant)
    min_partitions: int = option("minPartitions", whole_between(1), 1)
    check_crc: bool | None = option("checkCrc", flag)  # None: where a checksum covers all of a record

    def __post_init__(self) -> None:
        if self.bad_records == "dlq":
            raise ConfigError("badRecords=dlq needs a broker to send to; with files write badRecords=null")
        if bool(self.topics) == (self.topic_pattern is not None):
            raise ConfigError(
                "say what to read with exactly one of the options topic and subscribePattern; "
                "subscribePattern=.* reads all but system, retry and dead-letter topics"
            )


@dataclass(frozen=True, kw_only=True)
class SinkOptions(ClusterOptions):
    topic: str | None = option("topic", topic_name)
    guarantee: str = option("deliveryGuarantee", one_of(AT_LEAST_ONCE, IDEMPOTENT, EXACTLY_ONCE), AT_LEAST_ONCE)
    write_id: str | None = option("writeId", text)
    broker_name: str | None = option("brokerName", text)
    all_brokers: bool = option("allBrokers", flag, False)
    progress_is_late: bool = option("asyncProgressTrackingEnabled", flag, False)  # Spark's own
    group: str = option("producerGroup", group_name, "spark-rocketmq-sink")
    batch_rows: int = option("sendBatchRows", whole_between(1, 4096), 512)
    batch_bytes: int = option("sendBatchBytes", whole_between(1, 4 << 20), 256 << 10)
    max_in_flight: int = option("maxInFlight", whole_between(1, 4096), 64)
    send_timeout_ms: int = option("sendTimeoutMs", whole_between(1, _MAX_TIMEOUT_MS), 10_000)
    on_error: str = option("onError", one_of("fail", "skip", "dlq"), "fail")

    def __post_init__(self) -> None:
        ClusterOptions.__post_init__(self)
        if self.on_error == "dlq" and (not self.dlq_topic or self.dlq_topic == self.topic):
            raise ConfigError("onError=dlq needs the option dlqTopic: where rejected rows go, not topic itself")
        if self.guarantee != "at_least_once" and self.progress_is_late:
            raise ConfigError(
                f"deliveryGuarantee={self.guarantee} cannot be kept with asyncProgressTrackingEnabled=true, "
                "which lets Spark repeat several batches as others; leave that out"
            )
        if self.broker_name is not None and self.guarantee != EXACTLY_ONCE:
            raise ConfigError(
                "the option brokerName goes with deliveryGuarantee=exactly_once: it names the broker that decides "
                "whether a batch is committed; leave it out"
            )
        if self.all_brokers and self.guarantee != EXACTLY_ONCE:
            raise ConfigError(
                "the option allBrokers goes with deliveryGuarantee=exactly_once; with the others rows go to all anyway"
            )


Options = TypeVar("Options", SourceOptions, StoredOptions, SinkOptions)


def parse(kind: type[Options], options: Mapping[str, str]) -> Options:
    """The options of one kind. Raises: ConfigError, one is unknown, missing or wrong, or contradicts another."""
    entries, all_entries = _fields_by_name(kind), _fields_by_name(SourceOptions) | _fields_by_name(SinkOptions)
    spellings = _spellings(*all_entries.values(), *entries.values())
    values: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for written_name, value in options.items():
        name = spellings.get(written_name.lower(), written_name)  # Spark gives all names in lower case
        entry = entries.get(name.lower())
        if entry is None:
            if kind is StoredOptions and name.lower() in all_entries:
                raise ConfigError(f"option {name} is for topics of brokers; leave it out to read files of path")
            if name.lower() not in all_entries and name.lower() not in _SPARK_OPTIONS:
                raise ConfigError(_unknown_option(name, entries))
            continue
        if entry.name in spelled:
            raise ConfigError(f"options {spelled[entry.name]} and {name} mean the same; write one of them")
        spelled[entry.name] = name
        values[entry.name] = _parse_value(entry, name, value)
    if any(entry.default is MISSING and entry.name not in values for entry in fields(kind)):
        raise ConfigError('option nameServer is missing; write .option("nameServer", "host:9876")')
    return kind(**values)


def null_bad_records(options: Mapping[str, str]) -> dict[str, str]:
    """These options with badRecords=null, unless they set it: no sender may end a pipeline by a damaged body."""
    is_set = any(name.lower() == "badrecords" for name in options)
    return {**options} if is_set else {**options, "badRecords": "null"}


def reads_log_files(options: Mapping[str, str]) -> bool:
    """Whether the options, with names in lower case, mean files: a table of a catalog has `path` and name servers."""
    servers: Field[Any] = next(entry for entry in fields(ClusterOptions) if entry.name == "name_servers")
    return "path" in options and not any(name.lower() in options for name in servers.metadata["names"])


def _spellings(*entries: Field[Any]) -> dict[str, str]:
    return {name.lower(): name for entry in entries for name in entry.metadata["names"]}


def _fields_by_name(kind: type[Any]) -> dict[str, Field[Any]]:
    return {name.lower(): entry for entry in fields(kind) for name in entry.metadata["names"]}


def _parse_value(entry: Field[Any], name: str, value: object) -> Any:
    if not isinstance(value, str):
        raise ConfigError(f"option {name}={value!r} is no text; write {name}='...', or leave it out")
    try:
        return entry.metadata["parse"](value)
    except ValueError as error:
        raise ConfigError(f"option {name}={value!r}: {error}") from None


def _unknown_option(name: str, entries: Mapping[str, Field[Any]]) -> str:
    if name.lower().startswith("kafka."):
        return f"option {name} is Kafka's and has no meaning for RocketMQ; leave it out"
    spellings = _spellings(*entries.values())
    close = get_close_matches(name.lower(), spellings, n=1, cutoff=0.6)
    hint = (
        f"did you mean {spellings[close[0]]}?"
        if close
        else f"known are {', '.join(sorted(spellings.values(), key=str.lower))}"
    )
    return f"unknown option {name}; {hint}"


def option_names(*kinds: type[Any]) -> frozenset[str]:
    return frozenset(name.lower() for kind in kinds for entry in fields(kind) for name in entry.metadata["names"])


_SOURCE_OPTIONS = option_names(SourceOptions, StoredOptions)
_SINK_OPTIONS = option_names(SinkOptions)


def check_reading(options: Mapping[str, str]) -> None:
    """Raises: ConfigError, an option says how messages are sent."""
    for name in options:
        if name.lower() in _SINK_OPTIONS - _SOURCE_OPTIONS:
            raise ConfigError(f"option {name} says how messages are sent, and here they are read; leave it out")


def check_sending(options: Mapping[str, str]) -> None:
    """Raises: ConfigError, an option says what is read, and how."""
    for name in options:
        if name.lower() in _SOURCE_OPTIONS - _SINK_OPTIONS:
            raise ConfigError(f"option {name} says what is read, and here messages are sent: it has no effect; drop it")
