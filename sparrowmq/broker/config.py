"""What can be set about a broker: the honoured keys of Apache's broker.conf (the others: accepted_keys.py).

Without a file a broker is for this machine alone, and answers a send when the message is on disk; for the rest it has
Java's values.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

from sparrowmq.broker import accepted_keys
from sparrowmq.broker.failover_settings import FailoverSettings
from sparrowmq.config import setting
from sparrowmq.errors import ConfigError
from sparrowmq.kinds import ADDRESSES, BOOLEAN, PATH, SECRET, TEXT, Kind, choice, duration, integer, size
from sparrowmq.logs import LogSettings
from sparrowmq.metrics.settings import MetricsSettings
from sparrowmq.protocol import hosts
from sparrowmq.protocol.delay_levels import DelayLevels
from sparrowmq.protocol.names import TRACE_TOPIC, check_broker_name, check_topic
from sparrowmq.remoting.listen_address import EVERYWHERE, LOOPBACK, is_loopback
from sparrowmq.remoting.tls_settings import ServerTlsSettings
from sparrowmq.store.layout import ENTRY_SIZE, SECTOR
from sparrowmq.store.settings import CorruptPolicy, Flush, StoreSettings

_GIB = 1 << 30


class BrokerRole(Enum):
    """A broker's part in replication."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class SlaveAck(Enum):
    """What a slave tells its master of: what is written, as Java's do, or what is on its disk."""

    WRITTEN = "written"
    FLUSHED = "flushed"


def _port_or_off(text: str) -> int:
    if text.lower() == "off":
        return 0
    port = int(text)
    if not 0 < port < 65536:
        raise ValueError(text)
    return port


def _one_address(text: str) -> str:
    (address,) = ADDRESSES.parse(text)
    return str(address)


def _hours(text: str) -> str:
    if not all(0 <= int(hour) <= 23 for hour in text.split(";")):
        raise ValueError(text)
    return text


_NAME = Kind(check_broker_name, "letters, digits, '.', '_' and '-', at most 127 of them")
_TOPIC = Kind(check_topic, "the name of a topic")
_DELAYS = Kind(DelayLevels.parse, "delays with blanks between, as in 1s 30s 5m 2h 1d")
_PORT_OR_OFF = Kind(_port_or_off, "a port from 1 to 65535, or off", lambda port: str(port) if port else "off")
_HOURS = Kind(_hours, "hours of the day from 00 to 23, with ; between")
_ONE_ADDRESS = Kind(_one_address, "host:port")


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(ServerTlsSettings, MetricsSettings, LogSettings, FailoverSettings):
    """How to run a broker."""

    ACCEPTED: ClassVar[Mapping[str, str]] = accepted_keys.ACCEPTED
    REFUSED: ClassVar[Mapping[str, str]] = {**accepted_keys.REFUSED, **ServerTlsSettings.REFUSED}

    # Who it is
    cluster: str = setting("brokerClusterName", "DefaultCluster", _NAME, "the cluster that it belongs to")
    name: str = setting("brokerName", socket.gethostname(), _NAME, "its name; queues are known by it")
    broker_id: int = setting(
        "brokerId", 0, integer(0, (1 << 31) - 1), "0 is a master, each of its slaves has another one"
    )
    role: BrokerRole = setting(
        "brokerRole",
        BrokerRole.ASYNC_MASTER,
        choice(BrokerRole),
        "its part in replication (docs/replication.md); SYNC_MASTER: a send waits for a slave",
    )

    # Where it is
    port: int = setting("listenPort", 10911, integer(0, 65535), "where clients connect; 0 takes a free port")
    fast_port: int | None = setting(
        "fastListenPort",
        None,
        _PORT_OR_OFF,
        "where Java's clients before 4.5 send (the VIP channel): two below listenPort; off, or another port",
    )
    ip: str = setting("brokerIP1", LOOPBACK, TEXT, "the address that clients are told")
    ha_ip: str | None = setting(
        "brokerIP2", None, TEXT, "the address that slaves are told; brokerIP1 without it"
    )
    ha_port: int | None = setting(
        "haListenPort",
        None,
        _PORT_OR_OFF,
        "where slaves get a master's log: one above listenPort; off, or another port",
    )
    bind: str | None = setting(
        "bindAddress", None, TEXT, "the address to listen on; without it brokerIP1 decides"
    )
    insecure: bool = setting(
        "insecure", False, BOOLEAN, "whether to listen where others reach us, without access control"
    )
    acl: bool = setting(
        "aclEnable", False, BOOLEAN, "whether it asks who a client is and what it may do (docs/security.md)"
    )
    home: Path | None = setting(
        "rocketmqHome", None, PATH, "the folder whose conf/plain_acl.yml and conf/acl have the accounts"
    )
    acl_file: Path | None = setting("aclFile", None, PATH, "the one file with accounts, instead of those")
    acl_check: str = setting(
        "aclCheck",
        "plain",
        TEXT,
        "what is asked: plain, an entry point, module:Class; several with ; between",
    )
    namesrv: tuple[str, ...] = setting("namesrvAddr", (), ADDRESSES, "the name servers to register at")
    register_period_ms: int = setting(
        "registerNameServerPeriod",
        30_000,
        duration("ms", 10_000, 60_000),
        "how often it tells them that it is there",
        live=True,
    )
    register_timeout_ms: int = setting(
        "registerBrokerTimeoutMills",
        24_000,
        duration("ms", 100, 120_000),
        "how long one of them may take to answer",
        live=True,
    )

    # Master and slave
    slave_timeout_ms: int = setting(
        "slaveTimeout",
        3000,
        duration("ms", 1, 600_000),
        "how long a send to a SYNC_MASTER waits for a slave until it is answered FLUSH_SLAVE_TIMEOUT",
    )
    nearest_slave_bytes: int = setting(
        "haSlaveFallbehindMax",
        256 << 20,
        size(1, 1 << 50),
        "a slave that lacks as much is not waited for: SLAVE_NOT_AVAILABLE",
    )
    ha_batch_bytes: int = setting(
        "haTransferBatchSize", 32 << 10, size(1024, 4 << 20), "how much of the log a slave gets in one piece"
    )
    ha_heartbeat_ms: int = setting(
        "haSendHeartbeatInterval",
        5000,
        duration("ms", 10, 600_000),
        "how often master and slave give a sign of life where there is nothing else to say",
    )
    ha_silence_ms: int = setting(
        "haHousekeepingInterval",
        20_000,
        duration("ms", 40, 3_600_000),
        "how long they wait for one before they hang up",
    )
    ha_secret: str | None = setting(
        "haSecret",
        None,
        SECRET,
        "what master and slave show each other that they know; needed for slaves where aclEnable=true",
        secret=True,
    )
    ha_master: str | None = setting(
        "haMasterAddress",
        None,
        _ONE_ADDRESS,
        "the haListenPort of a slave's master; else name servers tell it",
    )
    slave_ack: SlaveAck = setting(
        "slaveAck",
        SlaveAck.WRITTEN,
        choice(SlaveAck),
        "whether a slave acknowledges what it has written, or only what is on its disk",
    )
    slave_reads: bool = setting(
        "slaveReadEnable",
        False,
        BOOLEAN,
        "whether a slave answers pulls, and a master sends consumers there that are far behind",
        live=True,
    )
    memory_percent: int = setting(
        "accessMessageInMemoryMaxRatio",
        40,
        integer(0, 100),
        "percent of the machine's memory that the log's end has: who reads what lies before it is far behind",
        live=True,
    )

    busy_poll: bool = setting(
        "busyPollEnable",
        True,
        BOOLEAN,
        "whether the event loop looks for more for some 60 us before it sleeps",
    )

    # Where messages are kept
    store_path: Path = setting(
        "storePathRootDir", Path("~/store").expanduser(), PATH, "the folder of everything it keeps"
    )
    commit_log_path: Path | None = setting(
        "storePathCommitLog", None, PATH, "the folder of the log; commitlog under it"
    )
    commit_log_file_bytes: int = setting(
        "mappedFileSizeCommitLog",
        _GIB,
        size(64 << 10, 2 * _GIB - SECTOR, multiple_of=SECTOR),
        "the size of one file of the log",
        also=("mapedFileSizeCommitLog",),
    )
    consume_queue_file_bytes: int = setting(
        "mappedFileSizeConsumeQueue",
        300_000 * ENTRY_SIZE,
        size(ENTRY_SIZE, _GIB, multiple_of=ENTRY_SIZE),
        "the size of one file of a queue, 20 bytes a message",
        also=("mapedFileSizeConsumeQueue",),
    )
    index: bool = setting("messageIndexEnable", True, BOOLEAN, "whether messages can be found by key")
    index_slots: int = setting("maxHashSlotNum", 5_000_000, integer(1, 1 << 28), "slots of one index file")
    index_entries: int = setting("maxIndexNum", 20_000_000, integer(2, 1 << 28), "entries of one index file")
    property_crc: bool = setting(
        "enabledAppendPropCRC", True, BOOLEAN, "whether a checksum covers all of a message"
    )
    corrupt_policy: CorruptPolicy = setting(
        "corruptPolicy",
        CorruptPolicy.FAIL,
        choice(CorruptPolicy),
        "what to do about damage of the log, found at the start or by a read",
    )

    # When messages are on disk, and how long
    flush: Flush = setting("flushDiskType", Flush.SYNC, choice(Flush), "whether an answer waits for the disk")
    flush_interval_ms: int = setting(
        "flushIntervalCommitLog",
        500,
        duration("ms", 1, 60_000),
        "how often ASYNC_FLUSH writes to disk; at least every 300 ms",
        live=True,
    )
    safety_timeout_ms: int = setting(
        "syncFlushTimeout",
        5000,
        duration("ms", 1, 600_000),
        "how long a send waits for the disk until it is answered FLUSH_DISK_TIMEOUT",
    )
    retention_h: int = setting(
        "fileReservedTime", 72, duration("h", 1, 1_000_000), "how long messages are kept", live=True
    )
    delete_when: str = setting(
        "deleteWhen", "04", _HOURS, "the hours of the day when expired files are deleted", live=True
    )
    disk_max_used_percent: int = setting(
        "diskMaxUsedSpaceRatio",
        75,
        integer(10, 95),
        "percent of the disk above which expired files go at any hour",
        live=True,
    )
    scrub_mib_s: int = setting(
        "scrubRate",
        1,
        integer(0, 10_000),
        "MiB of the log that are read in a second and compared with their checksums, to find what rotted; 0 is none",
        live=True,
    )

    # Topics, groups and messages
    auto_create_topic: bool = setting(
        "autoCreateTopicEnable", True, BOOLEAN, "whether a send makes its topic", live=True
    )
    auto_create_group: bool = setting(
        "autoCreateSubscriptionGroup", True, BOOLEAN, "whether a consumer makes its group", live=True
    )
    topic_queues: int = setting(
        "defaultTopicQueueNums",
        8,
        integer(1, 65_535),
        "at most so many queues for a topic made by a send",
        live=True,
    )
    cluster_topic: bool = setting(
        "clusterTopicEnable", True, BOOLEAN, "whether the topic named like the cluster takes messages"
    )
    broker_topic: bool = setting(
        "brokerTopicEnable", True, BOOLEAN, "whether the topic named like the broker takes messages"
    )
    trace_topic_enabled: bool = setting(
        "traceTopicEnable", False, BOOLEAN, "whether there is a topic for message traces"
    )
    trace_topic: str = setting("msgTraceTopicName", TRACE_TOPIC, _TOPIC, "its name")
    store_replies: bool = setting(
        "storeReplyMessageEnable", True, BOOLEAN, "whether answers to requests are kept, too"
    )
    property_filter: bool = setting(
        "enablePropertyFilter", False, BOOLEAN, "whether consumers may filter by SQL92 expressions"
    )
    permission: int = setting(
        "brokerPermission", 6, integer(0, 7), "what clients may do here: 2 write, 4 read, 6 both", live=True
    )
    max_message_bytes: int = setting(
        "maxMessageSize", 4 << 20, size(1, 16 << 20), "the largest body that is taken", live=True
    )
    delay_levels: DelayLevels = setting(
        "messageDelayLevel", DelayLevels.parse(), _DELAYS, "how long each delay level waits"
    )

    timers: bool = setting(
        "timerWheelEnable", True, BOOLEAN, "whether messages are delivered at any time that they ask for"
    )
    max_timer_s: int = setting(
        "timerMaxDelaySec",
        40 * 86_400,
        duration("s", 1, 10 * 366 * 86_400),
        "how far away that time may be; 40 days, Java has 3",
    )
    recalls: bool = setting(
        "recallMessageEnable", True, BOOLEAN, "whether such messages can be recalled until then"
    )

    # Transactions
    transaction_timeout_ms: int = setting(
        "transactionTimeOut",
        6000,
        duration("ms", 1, 86_400_000),
        "how old a half message is when its producers are first asked about it",
    )
    transaction_interval_ms: int = setting(
        "transactionCheckInterval",
        60_000,
        duration("ms", 1, 86_400_000),
        "how long after a question the next one is asked; at least a second",
    )
    transaction_checks: int = setting(
        "transactionCheckMax",
        15,
        integer(1, 1_000_000),
        "how often it is asked; then the message is put aside",
    )
    reject_transactions: bool = setting(
        "rejectTransactionMessage", False, BOOLEAN, "whether half messages are refused"
    )

    # Pulling, and what is saved how often
    max_pull_messages: int = setting(
        "maxTransferCountOnMessageInMemory",
        32,
        integer(1, 65_536),
        "at most so many messages in an answer to a pull",
        live=True,
    )
    max_pull_bytes: int = setting(
        "maxTransferBytesOnMessageInMemory",
        256 << 10,
        size(1024, 16 << 20),
        "at most so many bytes in such an answer",
        live=True,
    )
    long_polling: bool = setting(
        "longPollingEnable",
        True,
        BOOLEAN,
        "whether a pull that finds nothing waits as long as it asks for",
        live=True,
    )
    short_polling_ms: int = setting(
        "shortPollingTimeMills",
        1000,
        duration("ms", 1, 60_000),
        "how long it waits at most where it does not",
        live=True,
    )
    save_offsets_ms: int = setting(
        "flushConsumerOffsetInterval",
        5000,
        duration("ms", 10, 3_600_000),
        "how often consumers' offsets are saved",
    )
    save_delays_ms: int = setting(
        "flushDelayOffsetInterval",
        10_000,
        duration("ms", 10, 3_600_000),
        "how often the progress of delay levels is saved",
    )

    @property
    def bind_address(self) -> str:
        """Where to listen: on `bind`, else on all addresses if clients are told a public one."""
        return self.bind or (self.ip if is_loopback(self.ip) else EVERYWHERE)

    def address(self, port: int) -> str:
        """What clients are told when it listens on `port`."""
        return f"{_bracketed(self.ip)}:{port}"

    def ha_address(self, port: int) -> str:
        """What slaves are told when it ships its log at `port`."""
        return f"{_bracketed(self.ha_ip or self.ip)}:{port}"

    @property
    def is_slave(self) -> bool:
        return self.role is BrokerRole.SLAVE

    @property
    def config_path(self) -> Path:
        """The folder of topics.json and its like."""
        return self.store_path / "config"

    @property
    def disk_clean_ratio(self) -> float:
        """How full the disk is when expired files go at any hour."""
        return self.disk_max_used_percent / 100

    @property
    def disk_force_ratio(self) -> float:
        """How full it is when files go that are not expired: Java's level, unless the operator's own lies above it."""
        return max(0.85, self.disk_clean_ratio)

    @property
    def disk_full_ratio(self) -> float:
        """How full it is when nothing more is taken: likewise."""
        return max(0.90, self.disk_clean_ratio)

    def store(self, port: int) -> StoreSettings:
        """The store's part; records carry the address, so `port` must be the one that is listened on.

        Raises:
            ConfigError: brokerIP1 is a name that nobody knows.
        """
        return StoreSettings(
            path=self.store_path,
            commit_log_path=self.commit_log_path,
            commit_log_file_size=self.commit_log_file_bytes,
            consume_queue_file_entries=self.consume_queue_file_bytes // ENTRY_SIZE,
            index=self.index,
            index_slots=self.index_slots,
            index_entries=self.index_entries,
            flush=self.flush,
            flush_interval_ms=self.flush_interval_ms,
            safety_timeout_ms=self.safety_timeout_ms,
            store_host=hosts.pack(f"{_bracketed(_resolved(self.ip))}:{port}"),
            property_crc=self.property_crc,
            corrupt_policy=self.corrupt_policy,
            retention_hours=self.retention_h,
            delete_when=self.delete_when,
            disk_clean_ratio=self.disk_clean_ratio,
            disk_force_ratio=self.disk_force_ratio,
            disk_full_ratio=self.disk_full_ratio,
            scrub_mib_s=self.scrub_mib_s,
            delay_levels_ms=self.delay_levels.delays_ms,
        )


def _bracketed(ip: str) -> str:
    return f"[{ip}]" if ":" in ip and not ip.startswith("[") else ip


def _resolved(host: str) -> str:
    """The IP address of a host: records have room for nothing else."""
    try:
        return str(socket.getaddrinfo(host.strip("[]"), None)[0][4][0])
    except OSError as error:
        raise ConfigError(
            f"brokerIP1 = {host!r} has no address ({error.strerror}); give the IP address itself"
        ) from error
