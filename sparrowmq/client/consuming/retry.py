"""The rules by which failed messages come again, and the exception that refuses a message.

@mq.handler("orders", group="billing", retry=Retry("1s", "10s", "1m", never=ValidationError))
async def bill(order: Order) -> None:
    if order.currency not in KNOWN:
        raise Reject(f"unknown currency {order.currency}")

   raises    1 s     raises    10 s    raises    1 min   raises
1 ────────────────> 2 ──────────────> 3 ──────────────> 4 ──────> dead-letter queue
any of them raises Reject, or ValidationError ──────────────────> dead-letter queue at once
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from traceback import TracebackException
from typing import Final, NamedTuple

from sparrowmq.client.arguments import check_count
from sparrowmq.errors import ConfigError, InvalidMessage
from sparrowmq.loop.tasks import single_error
from sparrowmq.protocol.delay_levels import duration_ms, duration_word
from sparrowmq.protocol.messages.delay_fields import level_s

MAX_RETRIES: Final = 1000
LONGEST_S: Final = 40 * 86_400.0  # brokers deliver no message later than that
FIRST_RETRY_LEVEL: Final = 3  # 10 s by default; each failure takes the next level
Never = type[Exception] | Iterable[type[Exception]]


class Reject(Exception):
    """Raise it in a handler, or in a `process()` block, to put the message into the dead-letter queue at once.

    The text is the reason. It is logged, and stored in the dead letter's property REJECT_REASON.
    """


class Retry:
    """The retries of messages that a handler fails to handle.

    Args:
        delays: the wait before each retry: "10s", a `timedelta`, or seconds. Without any, the broker's growing delays.
        times: the number of retries; by default one for each delay. Further ones repeat the last delay.
        never: errors after which a message is never retried, such as a `ValidationError`.
    Raises: ConfigError, an argument is wrong.
    """

    __slots__ = ("delays_s", "never", "times")

    def __init__(self, *delays: str | timedelta | float, times: int | None = None, never: Never = ()) -> None:
        if times is None and not delays:
            raise ConfigError('Retry() says nothing; give delays, as Retry("1s", "10s", "1m"), or times=')
        self.delays_s = tuple(_delay_seconds(delay) for delay in delays)
        self.times = check_count("times", len(delays) if times is None else times, at_least=0, at_most=MAX_RETRIES)
        self.never = _exception_classes(never)
        if self.times < len(delays):
            raise ConfigError(f"times={times} leaves out some of {len(delays)} delays; give fewer delays")

    def __repr__(self) -> str:
        waits = "".join(f"{delay:g}, " for delay in self.delays_s)
        return f"Retry({waits}times={self.times}, never={[error_class.__name__ for error_class in self.never]})"

    def delay_s(self, failures: int) -> float | None:
        """The wait before the next delivery, after so many earlier failures; None leaves it to the broker."""
        return self.delays_s[min(failures, len(self.delays_s) - 1)] if self.delays_s else None


class Fate(NamedTuple):
    """The fate of a message that failed: whether it becomes a dead letter, and the words of the log."""

    is_dead: bool
    words: str


@dataclass(frozen=True, slots=True)
class FailureRules:
    """The rules for messages that a consumer fails to handle.

    Attributes:
        handler: its name; "" if the program takes the messages itself.
        retry: the program's own delays; None leaves them to the broker.
        times: the number of retries; None for no limit.
        pause_s: of an ordered queue after a failure; None in a consumer that is not ordered.
        not_retried: the reason why no message comes again; "" if messages do.
    """

    group: str = ""
    handler: str = ""
    retry: Retry | None = None
    times: int | None = None
    pause_s: float | None = None
    not_retried: str = ""

    def __str__(self) -> str:
        loop = f"handler {self.handler}" if self.handler else "a loop"
        return f"{loop} of group {self.group}" if self.group else loop

    def fate(self, failures: int, *, is_rejected: bool) -> Fate:
        """Return what happens to a message that failed, after so many earlier failures."""
        limit = ", without a limit" if self.times is None else f" of {self.times + 1}"
        tries = f"try {failures + 1}{limit}"
        is_dead = is_rejected or (self.times is not None and failures >= self.times)
        if self.not_retried:
            return Fate(False, f"{tries}; {self.not_retried}")
        if is_dead:
            return Fate(True, f"{tries}; it goes to the dead-letter queue")
        retry_delay_s = self.retry.delay_s(failures) if self.retry is not None else None
        delay_s = self.pause_s if retry_delay_s is None else retry_delay_s
        if delay_s is None:
            return Fate(
                False, f"{tries}; it comes again in about {_duration_text(level_s(FIRST_RETRY_LEVEL + failures))}"
            )
        queue_note = ", and its queue waits" if self.pause_s is not None else ""
        return Fate(False, f"{tries}; it comes again in {_duration_text(delay_s)}{queue_note}")


def reject_reason(error: BaseException, failures: int, retry: Retry | None) -> str | None:
    """The reason not to deliver a message again after an error and so many earlier failures; None for a delivery."""
    error = single_error(error)
    if isinstance(error, Reject):
        return text_of(error) or "rejected"
    if retry is None:
        return None
    error_text = f"{type(error).__name__}: {text_of(error)}"
    if isinstance(error, retry.never) or isinstance(decode_error(error), retry.never):
        return error_text
    return f"failed {failures + 1} times: {error_text}" if failures >= retry.times else None


def decode_error(error: BaseException) -> BaseException | None:
    """The decoder's error if a body does not fit its handler: it causes an InvalidMessage. None for another error."""
    error = single_error(error)
    return error.__cause__ if isinstance(error, InvalidMessage) else None


def text_of(error: BaseException) -> str:
    """The text of an error as a traceback has it, also if its `__str__` fails; without halves of surrogate pairs."""
    error_text = str(TracebackException(type(error), error, None))
    return error_text.encode(errors="backslashreplace").decode()


def is_reject(error: BaseException | None) -> bool:
    return error is not None and isinstance(single_error(error), Reject)


def _duration_text(seconds: float) -> str:
    return duration_word(round(seconds) * 1000) if seconds >= 1 and seconds.is_integer() else f"{seconds:g}s"


def _delay_seconds(delay: object) -> float:
    if isinstance(delay, timedelta):
        seconds = delay.total_seconds()
    elif isinstance(delay, str):
        ms = duration_ms(delay)
        seconds = ms / 1000 if ms is not None else -1
    elif isinstance(delay, int | float) and not isinstance(delay, bool):
        seconds = float(delay)
    else:
        seconds = -1
    if not 0 < seconds <= LONGEST_S:
        raise ConfigError(
            f"{delay!r} is not the delay of a retry; give durations, as Retry('1s', '10s', '1m'), or seconds"
        )
    return seconds


def _exception_classes(never: object) -> tuple[type[Exception], ...]:
    classes = tuple(never) if isinstance(never, Iterable) else (never,)
    for error_class in classes:
        if not (isinstance(error_class, type) and issubclass(error_class, Exception)):
            raise ConfigError(f"never={never!r}: give classes of exceptions, as never=[ValidationError]")
    return classes
