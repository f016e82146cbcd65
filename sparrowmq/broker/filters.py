"""Filters that consumers bring: SQL92 expressions, each compiled once for all who use it.

An expression comes with a consumer's check at its start (CHECK_CLIENT_CONFIG), with its heartbeats, and, from some
clients, with every pull. It is compiled when it is first seen and kept, with what was wrong with it: a consumer with a
bad one goes on asking. A broker allows them with `enablePropertyFilter`.

A heartbeat with a bad expression is taken, for it carries other groups too, and the pull is refused. Unlike Java: by
code 23 with the place, not by 27 without a word.
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
_USUAL_SIZE: Final = 64  # words and signs; with more, fewer records are looked at in one go

PARSE_FAILED: Final = "parse the consumer's subscription failed"


class Filters:
    """The filters of all consumers.

    Args:
        are_allowed: whether there may be others than by tags (enablePropertyFilter).
    """

    def __init__(self, are_allowed: bool) -> None:
        self._are_allowed = are_allowed
        self._parse: Callable[[str], Filter] | None = None
        if are_allowed:
            # At the start, as it takes the loop some time; and only then, as it takes a megabyte and a half.
            from sparrowmq.filter.grammar import parse

            self._parse = parse
        self._kept: dict[str, Selector | str] = {}  # or what is wrong with it
        self._kept_characters = 0

    def selector(self, kind: str, expression: str | None) -> Selector:
        """What lets through the messages that an expression wants.

        Raises:
            RemoteError: there are no such filters here, or the expression is bad.
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
        """A group's heartbeat subscribes so: told once in the log if it is bad."""
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
            assert self._parse is not None, "nobody comes here where there are no filters"
            found = _compile(expression, self._parse)
            self._kept_characters += len(expression)
        self._kept[expression] = found  # behind those that were not asked for since
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
    """The hashes that a queue entry must have, where the expression wants certain tags: other records stay closed."""
    tags = wanted.texts(Property.TAGS)
    # Of a text that was no UTF-8 the sender may have had another hash.
    return frozenset(map(java_hash, tags)) if tags and all(map(str.isascii, tags)) else None
