"""Filters of consumers: SQL92 expressions, each compiled once for all its consumers.

A consumer sends an expression with the check at its start (CHECK_CLIENT_CONFIG) and with its heartbeats. Some clients
send it with every pull too. The broker compiles an expression when it first sees it, and keeps the result. It keeps the
error of a bad expression too, because the consumer goes on asking. `enablePropertyFilter` allows these filters.

A heartbeat with a bad expression is accepted, because it carries other groups too. The pull is refused. Unlike Java:
the refusal has code 23 and the place of the error; Java answers 27 without a text.
Source: ConsumerFilterManager and PullMessageProcessor, Java 4.9.7.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from sparrowmq.broker.sql_matching import predicate
from sparrowmq.errors import LONGEST_REMARK, InvalidFilter, RemoteError
from sparrowmq.filter.tree import Filter
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.selector import Selector
from sparrowmq.protocol.subscription import SQL92, Subscription, java_hash
from sparrowmq.safe_text import shown

log = logging.getLogger(__name__)

MOST_KEPT: Final = 1000
MOST_KEPT_CHARACTERS: Final = 1 << 20  # of all expressions together
_USUAL_SIZE: Final = 64  # words and signs; with a longer expression, one step scans fewer records

PARSE_FAILED: Final = "parse the consumer's subscription failed"


class Filters:
    """The filters of all consumers.

    Args:
        are_allowed: whether consumers may filter by more than tags (enablePropertyFilter).
    """

    def __init__(self, are_allowed: bool) -> None:
        self._are_allowed = are_allowed
        self._parse: Callable[[str], Filter] | None = None
        if are_allowed:
            # Import it at the start, because this blocks the loop for some time, and only if it is needed: 1.5 MB.
            from sparrowmq.filter.grammar import parse

            self._parse = parse
        self._kept: dict[str, Selector | str] = {}  # a text is the error of a bad expression
        self._kept_characters = 0

    def selector(self, kind: str, expression: str | None) -> Selector:
        """Return the selector of the messages that match an expression.

        Raises:
            RemoteError: this broker has no filters of this kind, or the expression is bad.
        """
        if kind != SQL92 or not self._are_allowed:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {shown(kind)}",
            )
        found = self._compiled(expression or "")
        if isinstance(found, Selector):
            return found
        raise RemoteError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"{PARSE_FAILED}: {found}")

    def announced(self, group: str, subscription: Subscription) -> None:
        """Compile the expression of a heartbeat's subscription. Log a bad one once."""
        if self._are_allowed and subscription.kind == SQL92 and subscription.expression not in self._kept:
            found = self._compiled(subscription.expression)
            if isinstance(found, str):
                log.warning(
                    "group %s subscribes %s by a bad SQL92 expression: %s",
                    shown(group),
                    shown(subscription.topic),
                    shown(found, LONGEST_REMARK),
                )

    def _compiled(self, expression: str) -> Selector | str:
        found = self._kept.pop(expression, None)
        if found is None:
            assert self._parse is not None, "unreachable where there are no filters"
            found = _compile(expression, self._parse)
            self._kept_characters += len(expression)
        self._kept[expression] = found  # the last, so the least recently used expression is the first
        while len(self._kept) > MOST_KEPT or self._kept_characters > MOST_KEPT_CHARACTERS:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._kept_characters -= len(oldest)
        return found


def _compile(expression: str, parse: Callable[[str], Filter]) -> Selector | str:
    try:
        wanted = parse(expression)
    except InvalidFilter as error:
        return str(error)
    return Selector(_tags_codes(wanted), predicate(wanted), 1 + wanted.size // _USUAL_SIZE)


def _tags_codes(wanted: Filter) -> frozenset[int] | None:
    """The tag hashes of matching queue entries, if the expression wants certain tags. Other records are not read."""
    tags = wanted.texts(Property.TAGS)
    # Only for ASCII tags: if a sender's text was no UTF-8, its hash there may have been another one.
    return frozenset(map(java_hash, tags)) if tags and all(map(str.isascii, tags)) else None
