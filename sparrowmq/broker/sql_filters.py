"""SQL92 filters, each compiled once for all its consumers. Tag filters are in protocol/selector.py.

A consumer sends an expression with the check at its start (CHECK_CLIENT_CONFIG) and with its heartbeats. Some clients
send it with every pull too. The broker compiles an expression for the first check or pull that needs it, and keeps the
result. It keeps the error of a bad expression too, because the consumer goes on asking. A long expression is compiled
in slices. `enablePropertyFilter` allows these filters.

A heartbeat with a bad expression is accepted, because it carries other groups too, and nothing is compiled for it. The
pull is refused. Unlike Java: the refusal has code 23 and the place of the error; Java answers 27 without a text.
Source: ConsumerFilterManager and PullMessageProcessor, Java 4.9.7.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from sparrowmq.broker.sql_matching import predicate
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import LONGEST_REMARK, InvalidFilter, RemoteError
from sparrowmq.filter.tree import Filter
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.loop.slices import Steps, at_once
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.selector import Selector
from sparrowmq.protocol.subscription import SQL92, java_hash
from sparrowmq.remoting.log_limit import LogLimit

log = logging.getLogger(__name__)

MOST_KEPT: Final = 1000
MOST_KEPT_CHARACTERS: Final = 1 << 20  # of all expressions together
_SHORT: Final = 256  # characters of an expression that is compiled in about 1 ms
_USUAL_SIZE: Final = 64  # of a filter; with a larger one, one read scans fewer records

PARSE_FAILED: Final = "parse the consumer's subscription failed"


class Filters:
    """The filters of all consumers.

    Args:
        are_allowed: whether consumers may filter by more than tags (enablePropertyFilter).
        clock: for the limit of log lines, because a consumer can invent any number of bad expressions.
    """

    def __init__(self, are_allowed: bool, clock: Clock | None = None) -> None:
        self._are_allowed = are_allowed
        self._lines = LogLimit(clock or SystemClock())
        self._parsing: Callable[[str], Steps[Filter]] | None = None
        if are_allowed:
            # Import it at the start, because this blocks the loop for some time, and only if it is needed: 1.5 MB.
            from sparrowmq.filter.grammar import parsing

            self._parsing = parsing
        self._by_expression: dict[str, Selector | str] = {}  # a text is the error of a bad expression
        self._kept_characters = 0

    def selector(self, kind: str, expression: str | None) -> Selector | Steps[Selector]:
        """Return the selector of the messages that match an expression, or the work to compile a long one.

        Raises: RemoteError, this broker has no filters of this kind, or the expression is bad.
        """
        if kind != SQL92 or not self._are_allowed:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {shown(kind)}",
            )
        text = expression or ""
        found = self._by_expression.pop(text, None)
        if found is not None:
            self._by_expression[text] = found  # the last, so the least recently used expression is the first
            return _sound(found)
        return self._compiled(text) if len(text) > _SHORT else at_once(self._compiled(text))

    def _compiled(self, expression: str) -> Steps[Selector]:
        assert self._parsing is not None, "unreachable where there are no filters"
        found = yield from _compile(expression, self._parsing)
        if isinstance(found, str):
            text = "a consumer asks for a bad SQL92 expression: %s"
            self._lines.log(log, logging.WARNING, text, shown(found, LONGEST_REMARK))
        if self._by_expression.pop(expression, None) is None:  # another pull may have compiled it during a pause
            self._kept_characters += len(expression)
        self._by_expression[expression] = found
        while len(self._by_expression) > MOST_KEPT or self._kept_characters > MOST_KEPT_CHARACTERS:
            oldest = next(iter(self._by_expression))
            del self._by_expression[oldest]
            self._kept_characters -= len(oldest)
        return _sound(found)


def _sound(compiled: Selector | str) -> Selector:
    if isinstance(compiled, Selector):
        return compiled
    raise RemoteError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"{PARSE_FAILED}: {compiled}")


def _compile(expression: str, parsing: Callable[[str], Steps[Filter]]) -> Steps[Selector | str]:
    try:
        wanted = yield from parsing(expression)
    except InvalidFilter as error:
        return str(error)
    return Selector(_tags_codes(wanted), predicate(wanted), 1 + wanted.size // _USUAL_SIZE)


def _tags_codes(expression: Filter) -> frozenset[int] | None:
    """The tag hashes of matching queue entries, if the expression wants certain tags. Other records are not read."""
    tags = expression.texts(Property.TAGS)
    # Only for ASCII tags: if a sender's text was no UTF-8, its hash there may have been another one.
    return frozenset(map(java_hash, tags)) if tags and all(map(str.isascii, tags)) else None
