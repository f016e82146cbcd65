"""The settings of a broker: the keys of Apache's broker.conf, and those of them that have no effect here.

Without a file only this machine can connect, and a send is answered when the message is on disk. The other defaults are
Java's. An operator's file should load unchanged, and the broker reports the keys without effect, each with the reason.
Some keys protect data or access: ignoring them would be unsafe, so the broker refuses to start with them.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final

from sparrowmq.broker.failover.failover_settings import FailoverSettings
from sparrowmq.core.logs import LogSettings
from sparrowmq.errors import ConfigError
from sparrowmq.metrics.metrics_settings import MetricsSettings
from sparrowmq.protocol import hosts
from sparrowmq.protocol.delay_levels import DelayLevels
from sparrowmq.protocol.names import TRACE_TOPIC, check_broker_name, check_topic
from sparrowmq.remoting.listener import EVERYWHERE, LOOPBACK, is_loopback
from sparrowmq.remoting.quota_rules import QUOTAS, QuotaRule
from sparrowmq.remoting.tls.tls_settings import ServerTlsSettings
from sparrowmq.settings.setting_kinds import (
    ADDRESSES,
    BOOLEAN,
    PATH,
    SECRET,
    TEXT,
    Kind,
    choice,
    duration,
    integer,
    size,
    whole_number,
)
from sparrowmq.settings.settings import setting
from sparrowmq.settings.user_settings import UserSettings
from sparrowmq.store.layout import ENTRY_SIZE, SECTOR
from sparrowmq.store.store_settings import CorruptPolicy, Flush, StoreSettings

_BY_REASON = {
    "one event loop serves all connections; there are no threads to size": """
        sendMessageThreadPoolNums pullMessageThreadPoolNums queryMessageThreadPoolNums adminBrokerThreadPoolNums
        processReplyMessageThreadPoolNums clientManageThreadPoolNums consumerManageThreadPoolNums
        heartbeatThreadPoolNums endTransactionThreadPoolNums sendThreadPoolQueueCapacity pullThreadPoolQueueCapacity
        queryThreadPoolQueueCapacity putThreadPoolQueueCapacity serverWorkerThreads serverSelectorThreads
        serverCallbackExecutorThreads useReentrantLockWhenPutMessage""",
    "a send is stored the moment it is read; it never waits in a queue": """
        waitTimeMillsInSendQueue waitTimeMillsInPullQueue waitTimeMillsInHeartbeatQueue
        waitTimeMillsInTransactionQueue brokerFastFailureEnable osPageCacheBusyTimeOutMills""",
    "messages go to the operating system at once, and to disk in one sync for all that wait": """
        flushCommitLogLeastPages flushCommitLogThoroughInterval flushConsumeQueueLeastPages
        flushConsumeQueueThoroughInterval flushIntervalConsumeQueue commitIntervalCommitLog commitCommitLogLeastPages
        commitCommitLogThoroughInterval flushCommitLogTimed transientStorePoolEnable
        transientStorePoolSize fastFailIfNoBufferInStorePool""",
    "log files are allocated ahead, and the page cache decides what stays in memory": """
        warmMapedFileEnable warmMappedFileEnable flushLeastPagesWhenWarmMapedFile
        maxTransferCountOnMessageInDisk maxTransferBytesOnMessageInDisk transferMsgByHeap""",
    "an expired file is deleted at once; nothing keeps it open": """
        destroyMapedFileIntervalForcibly redeleteHangedFileInterval deleteCommitLogFilesInterval
        deleteConsumeQueueFilesInterval cleanFileForciblyEnable cleanResourceInterval""",
    "a SYNC_MASTER waits for one slave, as in 4.9, and a slave stays one": """
        inSyncReplicas minInSyncReplicas totalReplicas allAckInSyncStateSet enableSlaveActingMaster
        offsetCheckInSlave""",
    "an SQL92 filter looks at each message itself; there is no bit map ahead of it, and it is kept nowhere": """
        enableCalcFilterBitMap enableConsumeQueueExt filterDataCleanTimeSpan bitMapLengthConsumeQueueExt
        expectConsumerNumUseFilter maxErrorRateOfBloomFilter""",
    "messages that come again were wanted once, and are not filtered again": "filterSupportRetry",
    "messages for a time are delivered to the millisecond, and kept as long as they wait": """
        timerPrecisionMs timerEnableCheckMetrics timerRollWindowSlot timerCongestNumEachSlot timerFlushIntervalMs
        timerGetMessageThreadNum timerPutMessageThreadNum timerStopEnqueue timerStopDequeue timerSkipUnknownError
        timerWarmEnable timerEnableDisruptor timerInterceptDelayLevel mappedFileSizeTimerLog""",
    "metrics are read from a port (metricsExporterType=PROM), and not pushed": """
        metricsGrpcExporterTarget metricsGrpcExporterHeader""",
    "what name servers know is sent when it changed; else they are asked whether they still know it": """
        forceRegister compressedRegister enableSingleTopicRegister""",
    "name servers are given by namesrvAddr": "fetchNamesrvAddrByAddressServer rmqAddressServerDomain",
    "there is no Netty here": """
        serverPooledByteBufAllocatorEnable useEpollNativeSelector serverSocketSndBufSize serverSocketRcvBufSize
        clientCloseSocketIfTimeout serverChannelMaxIdleTimeSeconds""",
    "there is one kind of store, of files": """
        storeType enableRocksDBStore enableBuildConsumeQueueConcurrently messageStorePlugIn""",
    "settings are read from the file given with -c, and from nowhere else": "brokerConfigPath",
    "every broker is in the region DefaultRegion": "regionId traceOn",
    "there are no filter servers; filters run in the broker": "filterServerNums",
    "each record is checked at the start": "checkCRCOnRecover",
    "members learn at once that others came or left": "notifyConsumerIdsChangedEnable",
    "a slow consumer is sent to a slave, and not refused": "disableConsumeIfConsumerReadSlowly",
    "statistics of delay levels and of each queue's pulls are always kept": """
        enableDetailStat enableScheduleMessageStats""",
    "how far behind a group reads is measured as its lag": "diskFallRecorded",
    "a broker takes messages as soon as it has started": "startAcceptSendRequestTimeStamp",
    "a message is in one queue": "enableLmq enableMultiDispatch enableLmqStats",
    "the log is in one folder, read and written with files and not with a map": """
        readOnlyCommitLogStorePaths writeWithoutMmap coldDataFlowControlEnable coldDataScanEnable
        recoverConcurrently""",
    "files are deleted by fileReservedTime and diskMaxUsedSpaceRatio": """
        diskSpaceWarningLevelRatio diskSpaceCleanForciblyRatio enableCompaction""",
    "another broker is reached within 3 s or not at all": "connectTimeoutMillis",
    "a broker acts for no other one": "enableRemoteEscape",
    "only what is committed can be read, and pulls are served": "readUnCommitted rejectPullConsumerEnable",
    "there is one log of the program for all": "isolateLogEnable",
    "users and policies are state of the broker, in memory and in its log (authenticationEnabled)": """
        authenticationProvider authenticationMetadataProvider authenticationStrategy authorizationProvider
        authorizationMetadataProvider authorizationStrategy authConfigPath userCacheMaxNum userCacheExpiredSecond
        userCacheRefreshSecond aclCacheMaxNum aclCacheExpiredSecond aclCacheRefreshSecond
        statefulAuthenticationCacheMaxNum statefulAuthenticationCacheExpiredSecond
        statefulAuthorizationCacheMaxNum statefulAuthorizationCacheExpiredSecond""",
    "a log is copied by replication only": "duplicationEnable",
    "a query answers as many messages as Apache's broker does by default": "maxMsgsNumBatch defaultQueryMaxNum",
    "delayed messages are delivered in turns, one after the other": "enableScheduleAsyncDeliver",
}
_WITHOUT_FAILOVER = (
    "set enableControllerMode=true and etcdEndpoints instead (docs/operate/failover.md), and leave it out"
)
# What Apache's broker would have to be set to, to do as this one always does: `getBrokerConfig` shows these, too.
FIXED: Final = {
    "brokerFastFailureEnable": "false",
    "checkCRCOnRecover": "true",
    "cleanFileForciblyEnable": "true",
    "cleanResourceInterval": "10000",
    "coldDataFlowControlEnable": "false",
    "coldDataScanEnable": "false",
    "compressedRegister": "false",
    "connectTimeoutMillis": "3000",
    "defaultQueryMaxNum": "32",
    "deleteCommitLogFilesInterval": "0",
    "deleteConsumeQueueFilesInterval": "0",
    "destroyMapedFileIntervalForcibly": "0",
    "disableConsumeIfConsumerReadSlowly": "false",
    "diskFallRecorded": "false",
    "duplicationEnable": "false",
    "enableCalcFilterBitMap": "false",
    "enableCompaction": "false",
    "enableConsumeQueueExt": "false",
    "enableDLegerCommitLog": "false",
    "enableDetailStat": "true",
    "enableLmq": "false",
    "enableLmqStats": "false",
    "enableMultiDispatch": "false",
    "enableRemoteEscape": "false",
    "enableScheduleAsyncDeliver": "false",
    "enableScheduleMessageStats": "true",
    "enableSlaveActingMaster": "false",
    "fastFailIfNoBufferInStorePool": "false",
    "fetchNamesrvAddrByAddressServer": "false",
    "filterServerNums": "0",
    "filterSupportRetry": "false",
    "flushCommitLogLeastPages": "0",
    "flushCommitLogTimed": "true",
    "forceRegister": "false",
    "isolateLogEnable": "false",
    "maxMsgsNumBatch": "64",
    "messageStorePlugIn": "",
    "notifyConsumerIdsChangedEnable": "true",
    "offsetCheckInSlave": "false",
    "readOnlyCommitLogStorePaths": "",
    "readUnCommitted": "false",
    "recoverConcurrently": "false",
    "regionId": "DefaultRegion",
    "rejectPullConsumerEnable": "false",
    "serverChannelMaxIdleTimeSeconds": "120",
    "serverSocketRcvBufSize": "0",
    "serverSocketSndBufSize": "0",
    "startAcceptSendRequestTimeStamp": "0",
    "storeType": "default",
    "timerStopDequeue": "false",
    "timerStopEnqueue": "false",
    "traceOn": "true",
    "transferMsgByHeap": "true",
    "transientStorePoolEnable": "false",
    "warmMapedFileEnable": "false",
    "writeWithoutMmap": "true",
}
# Java takes any number for these, and clamps four of them itself: diskMaxUsedSpaceRatio (10 to 95),
# registerNameServerPeriod (10 to 60 s) and both names of mappedFileSizeConsumeQueue (up to a multiple of 20). Ports,
# brokerId and brokerPermission are not here, as no other number means the same. Nor are mappedFileSizeCommitLog, since
# files of another size may exist, and fileReservedTime, since a small number deletes messages.
_NUMBERS: Final = """
    accessMessageInMemoryMaxRatio defaultTopicQueueNums diskMaxUsedSpaceRatio flushConsumerOffsetInterval
    flushDelayOffsetInterval flushIntervalCommitLog haHousekeepingInterval haMaxTimeSlaveNotCatchup
    haSendHeartbeatInterval haSlaveFallbehindMax haTransferBatchSize mapedFileSizeConsumeQueue
    mappedFileSizeConsumeQueue maxHashSlotNum maxIndexNum maxMessageSize maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInMemory registerBrokerTimeoutMills registerNameServerPeriod shortPollingTimeMills
    slaveTimeout syncFlushTimeout timerMaxDelaySec transactionCheckInterval transactionCheckMax transactionTimeOut
"""
CLAMPED: Final = frozenset(_NUMBERS.split())
ACCEPTED: Final = {key: reason for reason, keys in _BY_REASON.items() for key in keys.split()}
REFUSED: Final = {
    "enableDLegerCommitLog": _WITHOUT_FAILOVER,
    "aclCheck": "classes of yours that check requests were taken out. Leave the key out, so that the accounts decide, "
    "or use users and policies (docs/operate/security.md)",
}
_GIB = 1 << 30
_NAME = Kind(check_broker_name, "letters, digits and . _ -, at most 127 characters")
_TOPIC = Kind(check_topic, "the name of a topic")
_DELAYS = Kind(DelayLevels.parse, "delays with blanks between, as in 1s 30s 5m 2h")


class BrokerRole(Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class SlaveAck(Enum):
    """The messages that a slave acknowledges: written ones, as Java's do, or those on its disk."""

    WRITTEN = "written"
    FLUSHED = "flushed"


def _port_or_none(text: str) -> int | None:
    return None if text == "off" else integer(0, 65535).parse(text)


def _port_or_off(text: str) -> int:
    if text.lower() == "off":
        return 0
    port = whole_number(text)
    if not 0 < port < 65536:
        raise ValueError(text)
    return port


def _ha_port(text: str) -> int | None:
    """Parse a port, or "off". A number below 1 is the default, as for Java."""
    return _port_or_off(text) if text.lower() == "off" or whole_number(text) > 0 else None


def _one_address(text: str) -> str:
    (address,) = ADDRESSES.parse(text)
    return str(address)


def _hours(text: str) -> str:
    if not all(0 <= int(hour) <= 23 for hour in text.split(";")):
        raise ValueError(text)
    return text


_PORT_OR_OFF = Kind(_port_or_off, "a port from 1 to 65535, or off", lambda port: str(port) if port else "off")

_HA_PORT = Kind(_ha_port, _PORT_OR_OFF.allowed, _PORT_OR_OFF.render)

_PORT_OR_NONE = Kind(_port_or_none, "a port from 0 to 65535, or off", lambda port: "off" if port is None else str(port))

_HOURS = Kind(_hours, "hours of the day from 00 to 23, as in 04;16")

_ONE_ADDRESS = Kind(_one_address, "host:port")


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(UserSettings, FailoverSettings, ServerTlsSettings, MetricsSettings, LogSettings):
    """Settings of a broker. Those of failover, TLS, metrics and logs follow after its own."""

    ACCEPTED: ClassVar[Mapping[str, str]] = ACCEPTED
    CLAMPED: ClassVar[Collection[str]] = CLAMPED
    REFUSED: ClassVar[Mapping[str, str]] = {**REFUSED, **ServerTlsSettings.REFUSED}

    # The ten settings that most people need
    name: str = setting("brokerName", socket.gethostname(), _NAME)
    """Name of the broker. A master and its slaves have the same name."""
    cluster: str = setting("brokerClusterName", "DefaultCluster", _NAME)
    """Name of the cluster that the broker belongs to."""
    namesrv: tuple[str, ...] = setting("namesrvAddr", (), ADDRESSES)
    """Addresses of the name servers. The broker registers at each of them."""
    port: int = setting("listenPort", 10911, integer(0, 65535))
    """Port that clients connect to. 0 takes a free port."""
    ip: str = setting("brokerIP1", LOOPBACK, TEXT)
    """Address that clients are given. Clients must be able to reach the broker there."""
    store_path: Path = setting("storePathRootDir", Path("~/store").expanduser(), PATH)
    """Folder for all data of the broker."""
    flush: Flush = setting("flushDiskType", Flush.SYNC, choice(Flush))
    """When a send is answered: after the message is on disk (SYNC_FLUSH), or before (ASYNC_FLUSH)."""
    role: BrokerRole = setting("brokerRole", BrokerRole.ASYNC_MASTER, choice(BrokerRole))
    """Role in replication. A SYNC_MASTER answers a send when a slave has the message, too."""
    retention_h: int = setting("fileReservedTime", 72, duration("h", 1, 1_000_000), live=True)
    """Time to keep messages, in hours."""
    auto_create_topic: bool = setting("autoCreateTopicEnable", True, BOOLEAN, live=True)
    """Create a topic when a producer first sends to it."""

    # Network and addresses
    bind: str | None = setting("bindAddress", None, TEXT)
    """Address to listen on. By default brokerIP1 if that is a loopback address, else 0.0.0.0."""
    insecure: bool = setting("insecure", False, BOOLEAN)
    """Allow other machines to connect without access control."""
    ha_ip: str | None = setting("brokerIP2", None, TEXT)
    """Address that slaves are given. By default the value of brokerIP1."""
    ha_port: int | None = setting("haListenPort", None, _HA_PORT)
    """Port where slaves read the log of the master. By default listenPort plus 1."""
    fast_port: int | None = setting("fastListenPort", None, _PORT_OR_OFF)
    """Port for Java clients before 4.5 (VIP channel). By default listenPort minus 2."""
    grpc_port: int | None = setting("grpcServerPort", None, _PORT_OR_NONE)
    """Port for gRPC clients of RocketMQ 5, as 8081. Without it there is none. 0 takes a free port."""
    grpc_is_behind_proxy: bool = setting("grpcProxyProtocol", False, BOOLEAN)
    """Each connection to grpcServerPort begins with a PROXY header, version 1 or 2, which names the client."""
    grpc_signature_s: int = setting("grpcSignatureAge", 300, duration("s", 0, 86_400))
    """Longest difference between the time that a gRPC client signs and the broker's, in seconds. 0 allows any."""
    ha_bind: str | None = setting("haBindAddress", None, TEXT)
    """Address where haListenPort listens. By default bindAddress."""
    register_period_ms: int = setting("registerNameServerPeriod", 30_000, duration("ms", 10_000, 60_000), live=True)
    """Interval at which the broker registers at its name servers, in milliseconds."""
    register_timeout_ms: int = setting("registerBrokerTimeoutMills", 24_000, duration("ms", 100, 120_000), live=True)
    """Time limit for the answer of a name server, in milliseconds."""
    busy_poll: bool = setting("busyPollEnable", True, BOOLEAN)
    """Look for new requests for about 60 us before the event loop sleeps."""

    # Store and durability
    safety_timeout_ms: int = setting("syncFlushTimeout", 5000, duration("ms", 1, 600_000))
    """Time that a send waits for the disk, in milliseconds; then FLUSH_DISK_TIMEOUT."""
    flush_interval_ms: int = setting("flushIntervalCommitLog", 500, duration("ms", 1, 60_000), live=True)
    """Interval at which ASYNC_FLUSH writes the log to disk, in milliseconds. Above 300 counts as 300."""
    commit_log_path: Path | None = setting("storePathCommitLog", None, PATH)
    """Folder for the log. By default commitlog below storePathRootDir."""
    property_crc: bool = setting("enabledAppendPropCRC", True, BOOLEAN)
    """Store a checksum over the whole message, not only over its body."""
    corrupt_policy: CorruptPolicy = setting("corruptPolicy", CorruptPolicy.FAIL, choice(CorruptPolicy))
    """Reaction to a damaged log: fail, or quarantine the damaged messages and go on."""
    scrub_mib_s: int = setting("scrubRate", 1, integer(0, 10_000), live=True)
    """MiB of the log that are read and checked for damage per second. 0 switches the check off."""
    index: bool = setting("messageIndexEnable", True, BOOLEAN)
    """Keep an index that finds messages by key."""
    commit_log_file_bytes: int = setting(
        "mappedFileSizeCommitLog",
        _GIB,
        size(64 << 10, 2 * _GIB - SECTOR, multiple_of=SECTOR),
        also=("mapedFileSizeCommitLog",),
    )
    """Size of one file of the log, in bytes."""
    consume_queue_file_bytes: int = setting(
        "mappedFileSizeConsumeQueue",
        300_000 * ENTRY_SIZE,
        size(ENTRY_SIZE, _GIB, multiple_of=ENTRY_SIZE),
        also=("mapedFileSizeConsumeQueue",),
    )
    """Size of one file of a queue, in bytes. A message takes 20 bytes."""
    index_slots: int = setting("maxHashSlotNum", 5_000_000, integer(1, 1 << 28))
    """Number of hash slots in one index file."""
    index_entries: int = setting("maxIndexNum", 20_000_000, integer(2, 1 << 28))
    """Number of messages in one index file."""
    save_offsets_ms: int = setting("flushConsumerOffsetInterval", 5000, duration("ms", 10, 3_600_000))
    """Interval at which the offsets of consumer groups are saved, in milliseconds."""

    # Retention and disk
    delete_when: str = setting("deleteWhen", "04", _HOURS, live=True)
    """Hours of the day when expired files are deleted."""
    disk_max_used_percent: int = setting("diskMaxUsedSpaceRatio", 75, integer(10, 95), live=True)
    """Percent of the disk in use from which expired files are deleted at any hour."""

    set_aside_days: int = setting("setAsideDays", 30, integer(0, 36_500), live=True)
    """Days for which bytes that left the log are kept in the folder set-aside. 0 keeps them for good."""
    set_aside_limit: int = setting("setAsideLimit", 10 * _GIB, size(0, 1 << 50), live=True)
    """Bytes in set-aside from which its oldest files are deleted earlier, except *.forked."""

    # Topics and limits
    auto_create_group: bool = setting("autoCreateSubscriptionGroup", True, BOOLEAN, live=True)
    """Create a consumer group when its first consumer connects."""
    topic_queues: int = setting("defaultTopicQueueNums", 8, integer(1, 65_535), live=True)
    """Most queues of a topic that a send creates."""
    max_message_bytes: int = setting("maxMessageSize", 4 << 20, size(1, 16 << 20), live=True)
    """Largest message body that the broker accepts, in bytes."""
    repeat_window_ms: int = setting("repeatWindow", 3_600_000, duration("ms", 0, 30 * 86_400_000))
    """Time for which the broker recognises a message that a producer sends again, in milliseconds. 0: never."""
    property_filter: bool = setting("enablePropertyFilter", False, BOOLEAN)
    """Let consumers filter by SQL92 expressions."""
    permission: int = setting("brokerPermission", 6, integer(0, 7), live=True)
    """Permission of clients at this broker: 2 write, 4 read, 6 both."""
    drained: bool = setting("drained", False, BOOLEAN, live=True)
    """Hide the broker from producers, as `sparrowmq broker drain` does. It takes messages that come all the same."""
    max_pull_messages: int = setting("maxTransferCountOnMessageInMemory", 32, integer(1, 65_536), live=True)
    """Most messages in one answer to a pull."""
    max_pull_bytes: int = setting("maxTransferBytesOnMessageInMemory", 256 << 10, size(1024, 16 << 20), live=True)
    """Most bytes in one answer to a pull."""
    long_polling: bool = setting("longPollingEnable", True, BOOLEAN, live=True)
    """Let a pull without messages wait as long as the consumer asks for."""
    short_polling_ms: int = setting("shortPollingTimeMills", 1000, duration("ms", 1, 60_000), live=True)
    """Longest wait of a pull if longPollingEnable=false, in milliseconds."""
    quotas: tuple[QuotaRule, ...] = setting("quotas", (), QUOTAS, live=True)
    """Most requests, bytes, connections, held pulls and new topics of accounts, client addresses and topics."""
    max_held_pulls: int = setting("maxHeldPulls", 100_000, integer(1, 10_000_000), live=True)
    """Most pulls that wait for messages, of all clients. A client above it asks again after a pause."""
    max_held_pulls_of_one: int = setting("maxHeldPullsPerConnection", 5000, integer(1, 9999), live=True)
    """Most pulls that wait for messages on one connection. A client needs one for each of its queues."""
    message_group_read_ahead: int = setting("messageGroupReadAhead", 4096, integer(0, 65_536))
    """Most unacknowledged messages of a queue while orderly pops look for free message groups. 0: order per queue."""
    trace_topic_enabled: bool = setting("traceTopicEnable", False, BOOLEAN)
    """Provide a topic for message traces."""
    trace_topic: str = setting("msgTraceTopicName", TRACE_TOPIC, _TOPIC)
    """Name of the topic for message traces."""
    store_replies: bool = setting("storeReplyMessageEnable", True, BOOLEAN)
    """Store the replies to requests (request-reply), too."""
    cluster_topic: bool = setting("clusterTopicEnable", True, BOOLEAN)
    """Let clients use the topic that has the name of the cluster."""
    broker_topic: bool = setting("brokerTopicEnable", True, BOOLEAN)
    """Let clients use the topic that has the name of the broker."""

    # Delays and timers
    delay_levels: DelayLevels = setting("messageDelayLevel", DelayLevels.parse(), _DELAYS)
    """Delay of each delay level. The first one is level 1."""
    timers: bool = setting("timerWheelEnable", True, BOOLEAN)
    """Deliver messages at any time that the producer asks for."""
    max_timer_s: int = setting("timerMaxDelaySec", 40 * 86_400, duration("s", 1, 10 * 366 * 86_400))
    """Longest delay of such a message, in seconds. The default is 40 days; Java's is 3."""
    recalls: bool = setting("recallMessageEnable", True, BOOLEAN)
    """Let producers recall such a message before its delivery."""
    save_delays_ms: int = setting("flushDelayOffsetInterval", 10_000, duration("ms", 10, 3_600_000))
    """Interval at which the progress of the delay levels is saved, in milliseconds."""

    # Transactions
    transaction_timeout_ms: int = setting("transactionTimeOut", 6000, duration("ms", 1, 86_400_000))
    """Age of a half message before the broker first asks the producer, in milliseconds."""
    transaction_interval_ms: int = setting("transactionCheckInterval", 60_000, duration("ms", 1, 86_400_000))
    """Time between two checks of a transaction, in milliseconds. At least one second."""
    transaction_checks: int = setting("transactionCheckMax", 15, integer(1, 1_000_000))
    """Number of checks before a half message is moved to TRANS_CHECK_MAX_TIME_TOPIC."""
    reject_transactions: bool = setting("rejectTransactionMessage", False, BOOLEAN)
    """Refuse half messages."""

    # Replication
    broker_id: int = setting("brokerId", 0, integer(0, (1 << 31) - 1))
    """Number of the broker among those of its name. 0 is the master; each slave has its own number."""
    slave_reads: bool = setting("slaveReadEnable", False, BOOLEAN, live=True)
    """Let slaves answer pulls. A master sends consumers with a large lag to a slave."""
    slave_timeout_ms: int = setting("slaveTimeout", 1500, duration("ms", 1, 600_000))
    """Time that a send to a SYNC_MASTER waits for a slave, in milliseconds. Then the status is FLUSH_SLAVE_TIMEOUT."""
    slave_ack: SlaveAck = setting("slaveAck", SlaveAck.WRITTEN, choice(SlaveAck))
    """When a slave acknowledges a message: written to its log, or flushed to its disk."""
    ha_master: str | None = setting("haMasterAddress", None, _ONE_ADDRESS)
    """Address and haListenPort of the master. By default a slave asks the name servers."""
    ha_secret: str | None = setting("haSecret", None, SECRET, secret=True)
    """Secret that master and slaves share. With access control or enforced TLS no slave is let in without it."""
    nearest_slave_bytes: int = setting("haSlaveFallbehindMax", 256 << 20, size(1, 1 << 50))
    """Lag in bytes from which a SYNC_MASTER does not wait for a slave."""
    memory_percent: int = setting("accessMessageInMemoryMaxRatio", 40, integer(0, 100), live=True)
    """Percent of memory that holds the end of the log. Consumers of older messages go to a slave."""
    ha_batch_bytes: int = setting("haTransferBatchSize", 32 << 10, size(1024, 4 << 20))
    """Most bytes of the log that a slave gets in one piece."""
    ha_heartbeat_ms: int = setting("haSendHeartbeatInterval", 5000, duration("ms", 10, 600_000))
    """Interval between heartbeats of an idle master and slave, in milliseconds."""
    ha_silence_ms: int = setting("haHousekeepingInterval", 20_000, duration("ms", 40, 3_600_000))
    """Silence after which master and slave close their connection, in milliseconds."""

    # Access control
    acl: bool = setting("aclEnable", False, BOOLEAN)
    """Check the account and the permissions of every request."""
    home: Path | None = setting("rocketmqHome", None, PATH)
    """Folder whose conf/plain_acl.yml and conf/acl contain the accounts."""
    acl_file: Path | None = setting("aclFile", None, PATH)
    """File that contains all accounts. Replaces the files below rocketmqHome."""
    access_key: str | None = setting("brokerAccessKey", None, TEXT)
    """Account of the broker at name servers, and of a slave at its master."""
    secret_key: str | None = setting("brokerSecretKey", None, SECRET, secret=True)
    """Secret key of brokerAccessKey."""

    audit_log: bool = setting("auditLog", True, BOOLEAN)
    """Note requests for administrators, and denials, in a file. Only with access control."""
    audit_path: Path | None = setting("auditLogPath", None, PATH)
    """File of the audit log. By default audit.log below storePathRootDir."""

    @property
    def checks_access(self) -> bool:
        return self.acl or self.authentication

    @property
    def audit_file(self) -> Path:
        return self.audit_path or self.store_path / "audit.log"

    @property
    def bind_address(self) -> str:
        """The address to listen on: `bind`, else all addresses if `ip` is a public one."""
        return self.bind or (self.ip if is_loopback(self.ip) else EVERYWHERE)

    def address(self, port: int) -> str:
        return f"{_bracketed(self.ip)}:{port}"

    def ha_address(self, port: int) -> str:
        return f"{_bracketed(self.ha_ip or self.ip)}:{port}"

    @property
    def is_slave(self) -> bool:
        return self.role is BrokerRole.SLAVE

    @property
    def config_path(self) -> Path:
        return self.store_path / "config"

    @property
    def longest_pause_ms(self) -> int:
        """The longest pause of a group's retry policy; 0 without timers, so delay levels count."""
        return self.max_timer_s * 1000 if self.timers else 0

    @property
    def disk_clean_ratio(self) -> float:
        """Disk use from which expired files are deleted at any hour."""
        return self.disk_max_used_percent / 100

    @property
    def disk_force_ratio(self) -> float:
        """Disk use from which files are deleted before they expire: Java's, or the operator's if that is higher."""
        return max(0.85, self.disk_clean_ratio)

    @property
    def disk_full_ratio(self) -> float:
        """Disk use from which messages are refused: likewise."""
        return max(0.90, self.disk_clean_ratio)

    def as_shown(self) -> dict[str, str]:
        """Also the settings of Apache's broker that this one has in effect: derived ones, and what it always does."""
        derived = {
            "brokerIP2": self.ip,
            "storePathCommitLog": str(self.store_path / "commitlog"),
            "diskSpaceWarningLevelRatio": f"{self.disk_full_ratio * 100:.0f}",
            "diskSpaceCleanForciblyRatio": f"{self.disk_force_ratio * 100:.0f}",
            "maxTransferBytesOnMessageInDisk": str(self.max_pull_bytes),
            "maxTransferCountOnMessageInDisk": str(self.max_pull_messages),
            "useTLS": str(self.talks_tls).lower(),
        }
        return dict(sorted((derived | self.as_properties() | FIXED).items()))

    def store(self, port: int) -> StoreSettings:
        """The settings of the store; `port` must be the one that is listened on. Raises: ConfigError."""
        begun = StoreSettings(
            path=self.store_path,
            commit_log_path=self.commit_log_path,
            commit_log_file_size=self.commit_log_file_bytes,
            consume_queue_file_entries=self.consume_queue_file_bytes // ENTRY_SIZE,
            index=self.index,
            index_slots=self.index_slots,
            index_entries=self.index_entries,
            flush=self.flush,
            safety_timeout_ms=self.safety_timeout_ms,
            store_host=hosts.pack(f"{_bracketed(_resolved(self.ip))}:{port}"),
            property_crc=self.property_crc,
            corrupt_policy=self.corrupt_policy,
            delay_levels_ms=self.delay_levels.delays_ms,
        )
        return self.of_running_store(begun)

    def of_running_store(self, store: StoreSettings) -> StoreSettings:
        return replace(
            store,
            flush_interval_ms=self.flush_interval_ms,
            retention_hours=self.retention_h,
            delete_when=self.delete_when,
            disk_clean_ratio=self.disk_clean_ratio,
            disk_force_ratio=self.disk_force_ratio,
            disk_full_ratio=self.disk_full_ratio,
            scrub_mib_s=self.scrub_mib_s,
            set_aside_days=self.set_aside_days,
            set_aside_limit=self.set_aside_limit,
        )


def _bracketed(ip: str) -> str:
    return f"[{ip}]" if ":" in ip and not ip.startswith("[") else ip


def _resolved(host: str) -> str:
    """The IP address of a host: records have no room for a name."""
    try:
        return str(socket.getaddrinfo(host.strip("[]"), None)[0][4][0])
    except OSError as error:
        raise ConfigError(
            f"brokerIP1 = {host!r} has no address ({error.strerror}); give the IP address itself"
        ) from error
