"""One line about this program: for `sparrowmq version`, and the first line of a server's log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from sparrowmq import compiled
from sparrowmq.version import VERSION

if TYPE_CHECKING:  # a name server needs nothing of the broker
    from sparrowmq.broker.broker_settings import BrokerSettings

FROM_SOURCE: Final = "not compiled, so at half its speed (install a wheel for this platform, or run `./run compile`)"


def identity() -> str:
    form = "compiled" if compiled.is_in_use() else FROM_SOURCE
    return f"sparrowmq {VERSION}, {form}, Python {'.'.join(map(str, sys.version_info[:3]))}"


def keeping(settings: BrokerSettings) -> str:
    """Return where a broker stores messages, and what a send waits for."""
    return f"store {settings.store_path}, {settings.flush.value}"
