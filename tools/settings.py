"""The page of all settings, docs/operate/configuration.md: their order is here, the rest comes from their classes.

A setting that is new belongs into one of the groups below; tests/tools/test_settings.py fails until it is there.
"""

from __future__ import annotations

import re
import socket
import textwrap
from collections.abc import Iterable
from dataclasses import Field, dataclass
from pathlib import Path
from typing import Any, Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.settings.settings import Settings, keyed

_INTRODUCTION = """\
All settings of the broker and of the name server, the most needed first. The names are those of Apache's `broker.conf`
and `namesrv.conf`.

## Where settings come from

A later source in this list is stronger:

1. the default;
2. the file given with `-c`, as in `mqbroker -c broker.conf`: lines `key=value`, or TOML if its name ends in `.toml`;
3. the environment: `RMQ_BROKER_listenPort=10921`, or `RMQ_NAMESRV_listenPort=9877` for a name server;
4. the command line: `--set listenPort=10921`.

The variable `NAMESRV_ADDR` counts as `namesrvAddr` if no file, `RMQ_BROKER_namesrvAddr` or option gives one.

`mqbroker -c broker.conf -p` prints all values in use and stops.

- Sizes may have a unit: `64k`, `128m`, `2g`. Without a unit they are bytes.
- Times may have a unit: `500ms`, `5s`, `2h`, `3d`. Without a unit the description of the setting names it.
- A setting marked with * can change while the server runs:
  [`sparrowmq broker set`](operating.md#change-settings), or `mqadmin updateBrokerConfig` and `updateNamesrvConfig`.
- SparrowMQ does not need some of Apache's settings. The server accepts them and logs why they have no effect.
"""


@dataclass(frozen=True, slots=True)
class Group:
    """A section of the page."""

    title: str
    about: str  # what a reader should know before the table
    keys: tuple[str, ...]


BROKER: Final = (
    Group(
        "The ten settings that most people need",
        "A broker starts without any of them. Then only programs on its own machine can connect, and a send "
        "waits for the disk.",
        (
            "brokerName",
            "brokerClusterName",
            "namesrvAddr",
            "listenPort",
            "brokerIP1",
            "storePathRootDir",
            "flushDiskType",
            "brokerRole",
            "fileReservedTime",
            "autoCreateTopicEnable",
        ),
    ),
    Group(
        "Network and addresses",
        "`namesrvAddr`, `listenPort` and `brokerIP1` are in the first table. [Addresses and ports]"
        "(operating.md#addresses-and-ports) explains which address is for whom.",
        (
            "bindAddress",
            "insecure",
            "brokerIP2",
            "haListenPort",
            "fastListenPort",
            "registerNameServerPeriod",
            "registerBrokerTimeoutMills",
            "busyPollEnable",
        ),
    ),
    Group(
        "Store and durability",
        "`storePathRootDir` and `flushDiskType` are in the first table. [Durability](reliability.md) says what "
        "survives a crash and a power cut.",
        (
            "syncFlushTimeout",
            "flushIntervalCommitLog",
            "storePathCommitLog",
            "enabledAppendPropCRC",
            "corruptPolicy",
            "scrubRate",
            "messageIndexEnable",
            "mappedFileSizeCommitLog",
            "mappedFileSizeConsumeQueue",
            "maxHashSlotNum",
            "maxIndexNum",
            "flushConsumerOffsetInterval",
        ),
    ),
    Group(
        "Retention and disk",
        "`fileReservedTime` is in the first table. [The disk is full](operating.md#the-disk-is-full) has the limits.",
        ("deleteWhen", "diskMaxUsedSpaceRatio"),
    ),
    Group(
        "Topics and limits",
        "`autoCreateTopicEnable` is in the first table.",
        (
            "autoCreateSubscriptionGroup",
            "defaultTopicQueueNums",
            "maxMessageSize",
            "enablePropertyFilter",
            "brokerPermission",
            "maxTransferCountOnMessageInMemory",
            "maxTransferBytesOnMessageInMemory",
            "longPollingEnable",
            "shortPollingTimeMills",
            "traceTopicEnable",
            "msgTraceTopicName",
            "storeReplyMessageEnable",
            "clusterTopicEnable",
            "brokerTopicEnable",
        ),
    ),
    Group(
        "Delays and timers",
        "A delayed message has a delay level, or a delivery time of its own.",
        (
            "messageDelayLevel",
            "timerWheelEnable",
            "timerMaxDelaySec",
            "recallMessageEnable",
            "flushDelayOffsetInterval",
        ),
    ),
    Group(
        "Transactions",
        "A half message is a message of a transaction that is not committed yet.",
        ("transactionTimeOut", "transactionCheckInterval", "transactionCheckMax", "rejectTransactionMessage"),
    ),
    Group(
        "Replication",
        "`brokerRole` is in the first table. [Master and slave](replication.md) explains how replication works.",
        (
            "brokerId",
            "slaveReadEnable",
            "slaveTimeout",
            "slaveAck",
            "haMasterAddress",
            "haSecret",
            "haSlaveFallbehindMax",
            "accessMessageInMemoryMaxRatio",
            "haTransferBatchSize",
            "haSendHeartbeatInterval",
            "haHousekeepingInterval",
        ),
    ),
    Group(
        "Failover",
        "[Failover](failover.md) explains how a slave becomes master.",
        (
            "enableControllerMode",
            "etcdEndpoints",
            "masterLeaseTime",
            "haMaxTimeSlaveNotCatchup",
            "etcdPrefix",
            "etcdUser",
            "etcdPassword",
            "etcd.tls.enable",
            "etcd.tls.trustCertPath",
            "etcd.tls.certPath",
            "etcd.tls.keyPath",
        ),
    ),
    Group(
        "Access control",
        "[Accounts](security.md#accounts-and-permissions) shows the file of accounts.",
        ("aclEnable", "rocketmqHome", "aclFile", "aclCheck"),
    ),
)
BOTH: Final = (
    Group(
        "TLS",
        "The same settings are for a broker and for a name server. [Encrypt connections]"
        "(security.md#encrypt-connections-with-tls) has an example.",
        (
            "tls.server.mode",
            "tls.server.certPath",
            "tls.server.keyPath",
            "tls.server.keyPassword",
            "tls.server.need.client.auth",
            "tls.server.trustCertPath",
            "tls.server.authClient",
            "tls.enable",
            "tls.client.trustCertPath",
            "tls.client.certPath",
            "tls.client.keyPath",
            "tls.client.keyPassword",
            "tls.client.authServer",
            "tls.client.checkName",
            "tls.config.file",
            "tls.test.mode.enable",
        ),
    ),
    Group(
        "Metrics and logs",
        "The same settings are for a broker and for a name server. [Metrics and health](metrics.md) lists the metrics.",
        (
            "metricsExporterType",
            "metricsPromExporterPort",
            "metricsPromExporterHost",
            "metricsLabel",
            "metricsMaxSeries",
            "metricsOtlpEndpoint",
            "metricsOtlpIntervalMillis",
            "logLevel",
            "slowRequestMillis",
        ),
    ),
)
NAMESRV: Final = (
    Group(
        "Name server",
        "A name server also has the settings of [TLS](#tls) and of [Metrics and logs](#metrics-and-logs).",
        ("listenPort", "bindAddress", "insecure", "kvConfigPath", "orderMessageEnable"),
    ),
)


def settings_page() -> str:
    """The whole page."""
    sections = [*_sections(BrokerSettings, (*BROKER, *BOTH)), *_sections(NamesrvSettings, NAMESRV)]
    return "\n".join(["# Settings\n", _INTRODUCTION, *sections])


def _sections(kind: type[Settings], groups: Iterable[Group]) -> list[str]:
    found = {each.metadata["keys"][0]: each for each in keyed(kind)}
    return [
        f"## {group.title}\n\n{_paragraph(group.about)}\n\n{_table(found[key] for key in group.keys)}"
        for group in groups
    ]


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _table(settings: Iterable[Field[Any]]) -> str:
    return "".join(["| Setting | Default | Meaning | Allowed |\n|---|---|---|---|\n", *map(_row, settings)])


def _row(each: Field[Any]) -> str:
    key, about = each.metadata["keys"][0], each.metadata
    star = " *" if about["live"] else ""
    return f"| `{key}`{star} | {_default(each)} | {about['doc']} | {_allowed(about['kind'].allowed)} |\n"


def _allowed(words: str) -> str:
    """The words of an error, shorter: the description of the setting has the unit."""
    return re.sub(r"^a (whole number|number of \w+|size) from |, or a time such as \w+$", "", words)


def _default(each: Field[Any]) -> str:
    """The default, the same on every machine."""
    if each.default is None or each.default == ():
        return ""
    if each.default == socket.gethostname():
        return "the machine's name"
    text = str(each.metadata["kind"].render(each.default))
    return f"`{text.replace(str(Path.home()), '~')}`" if text else ""
