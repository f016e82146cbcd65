"""The page of all settings, docs/operate/configuration.md. Order and descriptions come from the settings classes."""

from __future__ import annotations

import ast
import inspect
import re
import socket
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.settings.settings import Settings, keyed_fields

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
    first: str  # the key of its first setting; the group ends where the next one begins


BROKER: Final = (
    Group(
        "The ten settings that most people need",
        "A broker starts without any of them. Then only programs on its own machine can connect, and a send "
        "waits for the disk.",
        "brokerName",
    ),
    Group(
        "Network and addresses",
        "`namesrvAddr`, `listenPort` and `brokerIP1` are in the first table. [Addresses and ports]"
        "(operating.md#addresses-and-ports) explains which address is for whom.",
        "bindAddress",
    ),
    Group(
        "Store and durability",
        "`storePathRootDir` and `flushDiskType` are in the first table. [Durability](reliability.md) says what "
        "survives a crash and a power cut.",
        "syncFlushTimeout",
    ),
    Group(
        "Retention and disk",
        "`fileReservedTime` is in the first table. [The disk is full](operating.md#the-disk-is-full) has the limits.",
        "deleteWhen",
    ),
    Group(
        "Topics and limits",
        "`autoCreateTopicEnable` is in the first table.",
        "autoCreateSubscriptionGroup",
    ),
    Group(
        "Delays and timers",
        "A delayed message has a delay level, or a delivery time of its own.",
        "messageDelayLevel",
    ),
    Group(
        "Transactions",
        "A half message is a message of a transaction that is not committed yet.",
        "transactionTimeOut",
    ),
    Group(
        "Replication",
        "`brokerRole` is in the first table. [Master and slave](replication.md) explains how replication works.",
        "brokerId",
    ),
    Group(
        "Access control",
        "[Accounts](security.md#accounts-and-permissions) shows the file of accounts.",
        "aclEnable",
    ),
    Group(
        "Failover",
        "[Failover](failover.md) explains how a slave becomes master.",
        "enableControllerMode",
    ),
)
BOTH: Final = (
    Group(
        "TLS",
        "The same settings are for a broker and for a name server. [Encrypt connections]"
        "(security.md#encrypt-connections-with-tls) has an example.",
        "tls.server.mode",
    ),
    Group(
        "Metrics and logs",
        "The same settings are for a broker and for a name server. [Metrics and health](metrics.md) lists the metrics.",
        "metricsExporterType",
    ),
)
NAMESRV: Final = (
    Group(
        "Name server",
        "A name server also has the settings of [TLS](#tls) and of [Metrics and logs](#metrics-and-logs).",
        "listenPort",
    ),
)


def settings_page() -> str:
    """The whole page."""
    broker = grouped(BrokerSettings, (*BROKER, *BOTH))
    namesrv = grouped(NamesrvSettings, (*NAMESRV, *BOTH))[: len(NAMESRV)]
    sections = [
        f"## {group.title}\n\n{_paragraph(group.about)}\n\n{_table(settings, descriptions(kind))}"
        for kind, groups in ((BrokerSettings, broker), (NamesrvSettings, namesrv))
        for group, settings in groups
    ]
    return "\n".join(["# Settings\n", _INTRODUCTION, *sections])


def grouped(kind: type[Settings], groups: Sequence[Group]) -> list[tuple[Group, list[Field[Any]]]]:
    """The settings of each group, in the order of the class."""
    settings = keyed_fields(kind)
    keys = [each.metadata["keys"][0] for each in settings]
    begins = [keys.index(group.first) for group in groups]
    ends = [*begins[1:], len(keys)]
    return [(group, settings[at:end]) for group, at, end in zip(groups, begins, ends, strict=True)]


def descriptions(kind: type[Settings]) -> dict[str, str]:
    """The string below each field, by the field's name."""
    found = {}
    for each in kind.__mro__[:-1]:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in pairwise(definition.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = text
    return found


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _table(settings: Iterable[Field[Any]], described: Mapping[str, str]) -> str:
    rows = [_row(each, described[each.name]) for each in settings]
    return "".join(["| Setting | Default | Meaning | Allowed |\n|---|---|---|---|\n", *rows])


def _row(each: Field[Any], description: str) -> str:
    key, about = each.metadata["keys"][0], each.metadata
    star = " *" if about["live"] else ""
    return f"| `{key}`{star} | {_default(each)} | {description} | {_allowed(about['kind'].allowed)} |\n"


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
