"""The page of all settings, docs/configuration.md, from the classes that define them."""

from __future__ import annotations

import socket
from dataclasses import Field
from pathlib import Path
from typing import Any

from sparrowmq.broker.config import BrokerSettings
from sparrowmq.config import Settings, keyed
from sparrowmq.namesrv.config import NamesrvSettings

_INTRODUCTION = """\
Keys have the names that Apache's `broker.conf` and `namesrv.conf` give them. They come from the file given with `-c`,
which the environment overrules (`RMQ_BROKER_listenPort`, `RMQ_NAMESRV_listenPort`), which the command line overrules
(`--set listenPort=10921`). Sizes and times may have a unit of their own: `128m`, `5s`. What is marked with * changes
while the server runs, by `mqadmin updateBrokerConfig` or `updateNamesrvConfig`. A key of Apache's that is not here
has no effect, and the server says why when it starts with it. [TLS and access control](security.md) have a page of
their own.
"""


def settings_page(note: str) -> str:
    """The whole page."""
    tables = (("Broker", BrokerSettings), ("Name server", NamesrvSettings))
    parts = [f"## {title}\n\n{_table(kind)}" for title, kind in tables]
    return "\n".join(["# Settings\n", note + "\n", _INTRODUCTION, *parts])


def _table(kind: type[Settings]) -> str:
    rows = [_row(each) for each in keyed(kind)]
    return "".join(["| key | default | what it is for | must be |\n|---|---|---|---|\n", *rows])


def _row(each: Field[Any]) -> str:
    key, about = each.metadata["keys"][0], each.metadata
    star = " *" if about["live"] else ""
    allowed = about["kind"].allowed.replace("|", "\\|")
    return f"| `{key}`{star} | {_otherwise(each)} | {about['doc']} | {allowed} |\n"


def _otherwise(each: Field[Any]) -> str:
    """The default, the same on every machine."""
    if each.default is None or each.default == ():
        return ""
    if each.default == socket.gethostname():
        return "the machine's name"
    text = str(each.metadata["kind"].render(each.default))
    return f"`{text.replace(str(Path.home()), '~')}`" if text else ""
