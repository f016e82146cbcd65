"""The settings of a producer."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from sparrowmq.client.arguments import check_count, check_flag, check_text
from sparrowmq.errors import ConfigError, InvalidName
from sparrowmq.protocol.names import DEFAULT_PRODUCER_GROUP, check_group

# The producer group of a program that names none. Programs share it, so none of them may answer for its transactions.
DEFAULT_GROUP: Final = "SPARROWMQ_PRODUCER"
OWN_GROUP: Final = (
    "a transaction needs a producer group of its own, because a broker asks any program of the group how the "
    'transaction ended; name one when you connect: sparrowmq.connect(..., group="payments")'
)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings of a producer. The names in brackets are Java's."""

    timeout_s: float = 3.0
    """Time limit of one message with all its attempts, from when it is in the window (sendMsgTimeout)."""
    retries: int = 2
    """Attempts after the first one (retryTimesWhenSendFailed)."""
    idempotent: bool = False
    """Whether a message whose answer was lost is only sent again to the same broker, which stores it once, until its
    time limit. Otherwise the next attempt may go to another broker, which stores it a second time. Brokers of Apache
    cannot do this: to them, messages are sent as without it."""
    retry_not_stored: bool = False
    """Whether to retry also a message that was stored less safely than the broker is configured to
    (retryAnotherBrokerWhenNotStoreOK)."""
    avoid_slow_brokers: bool = False
    """Whether to avoid brokers for a while that were slow or failed (sendLatencyFaultEnable)."""
    max_bytes: int = 4 * 1024 * 1024
    """Largest body (maxMessageSize); brokers have their own limit, which must be raised too."""
    compress_over_bytes: int = 4096
    """Size above which bodies are compressed with zlib (compressMsgBodyOverHowmuch)."""
    max_batch: int = 128
    """Messages that travel together, if they wait in the same turn of the loop (autoBatch); 1 sends each alone."""
    window: int = 512
    """Messages in flight."""
    window_bytes: int = 2 * 1024 * 1024
    """Bytes of bodies in flight. They are below the limit at which a connection stops reading, so that
    answers always arrive."""
    waiting_bytes: int = 256 * 1024 * 1024
    """Bytes of messages that wait for the window; more are refused."""

    def __post_init__(self) -> None:
        check_timeout(self.timeout_s)
        for name in ("max_bytes", "max_batch", "window", "window_bytes", "waiting_bytes"):
            check_count(name, getattr(self, name))
        for name in ("idempotent", "retry_not_stored", "avoid_slow_brokers"):
            check_flag(name, getattr(self, name))
        for name in ("retries", "compress_over_bytes"):
            check_count(name, getattr(self, name), at_least=0)


def check_timeout(timeout_s: object) -> float:
    """Return the time limit. Raises: ConfigError."""
    if isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool) and 0 < timeout_s < inf:
        return timeout_s
    raise ConfigError(
        f"timeout_s={timeout_s!r}: give seconds above 0; to wait for nothing there are send_soon and send_nowait"
    )


def check_producer_group(group: str) -> str:
    """Return the group, which a program may use. Raises: ConfigError, InvalidName."""
    check_text("group", group)
    if check_group(group) == DEFAULT_PRODUCER_GROUP:
        raise InvalidName(f"producer group {group} is reserved; choose the name of your application")
    return group
