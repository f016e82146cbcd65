"""The setting `quotas`: how much an account, a client address or a topic may use.

    quotas = account:billing requests=1000/s bytes=10MB/s; address:10.0.0.0/8 connections=100; topic:* bytes=5MB/s
             subject :name   limit=amount                  next rule

    account    an access key, or * for each other account
    address    an address, a network whose every address has this quota, or * for each other address; a /64 of IPv6
               counts as one address, unless the rule is for a part of it
    topic      a topic, or * for each other topic

    requests=1000/s, bytes=10MB/s, topics=20/h      per s, m, h or d; topics are those that are created
    connections=100, held=500                       at once; held pulls are those that wait for messages

The most exact rule counts: a name before *, a small network before a large one.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.settings.setting_kinds import Kind, Unreadable

ACCOUNT: Final = "account"
ADDRESS: Final = "address"
TOPIC: Final = "topic"
EACH: Final = "*"

RATES: Final = ("requests", "bytes", "topics")
COUNTS: Final = ("connections", "held")
_PEER_LIMITS: Final = (*RATES, *COUNTS)
LIMITS: Final = {ACCOUNT: _PEER_LIMITS, ADDRESS: _PEER_LIMITS, TOPIC: ("requests", "bytes", "held")}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_AMOUNT_PATTERN: Final = re.compile(r"([0-9]{1,12})([a-z]{0,2})(?:/([smhd]))?")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Rate:
    """An amount in some seconds. It may be used at once, and comes back evenly."""

    amount: int
    seconds: int


@dataclass(frozen=True, slots=True)
class QuotaRule:
    subject: str
    name: str  # as it is written: an access key, an address or a network, a topic, or *
    network: Network | None = None  # the network of an address rule
    rates: dict[str, Rate] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)  # each limit as it is written

    def __str__(self) -> str:
        return " ".join([f"{self.subject}:{self.name}", *(f"{key}={text}" for key, text in self.limits.items())])


def parse(text: str) -> tuple[QuotaRule, ...]:
    """Read the rules of a text. Raises: Unreadable, with the place and what is allowed there."""
    rules: dict[tuple[str, str], QuotaRule] = {}
    for part in text.split(";"):
        if part.strip():
            rule = _parse_rule(part.split())
            if (rule.subject, rule.name) in rules:
                raise Unreadable(f"{rule.subject}:{rule.name} has two rules; write its limits in one")
            rules[rule.subject, rule.name] = rule
    return tuple(rules.values())


def _parse_rule(words: list[str]) -> QuotaRule:
    subject, _, name = words[0].partition(":")
    if subject not in (ACCOUNT, ADDRESS, TOPIC) or not name:
        raise Unreadable(
            f"{words[0]!r} is not the start of a rule; write account:NAME, address:NETWORK or topic:NAME, such as "
            "account:billing requests=1000/s"
        )
    rule = QuotaRule(subject, name, _parse_network(name) if subject == ADDRESS and name != EACH else None)
    for word in words[1:]:
        _add_limit(rule, word)
    if not rule.limits:
        raise Unreadable(f"{words[0]} has no limit; write one behind it, such as requests=1000/s")
    return rule


def _parse_network(name: str) -> Network:
    try:
        return ipaddress.ip_network(name, strict=False)
    except ValueError:
        raise Unreadable(f"{name!r} is not an address; write 10.0.0.7, a network such as 10.0.0.0/8, or *") from None


def _add_limit(rule: QuotaRule, word: str) -> None:
    key, _, text = word.partition("=")
    limits = LIMITS[rule.subject]
    if key not in limits:
        raise Unreadable(f"{word!r}: {rule.subject}:{rule.name} can have the limits {', '.join(limits)}")
    match = _AMOUNT_PATTERN.fullmatch(text.lower())
    is_rate = key in RATES
    if match is None or match[2] not in (_UNITS if key == "bytes" else ("",)) or (match[3] is None) == is_rate:
        example = {"bytes": "10MB/s", "topics": "20/h"}.get(key, "1000/s" if is_rate else "100")
        raise Unreadable(f"{word!r}: write it as {key}={example}")
    amount = int(match[1]) * _UNITS[match[2]]
    if is_rate and amount == 0:
        raise Unreadable(f"{word!r}: a rate must be at least 1; use permissions to forbid access")
    rule.limits[key] = text
    if is_rate:
        rule.rates[key] = Rate(amount, _SECONDS[match[3]])
    else:
        rule.counts[key] = amount


QUOTAS: Final = Kind(
    parse,
    "rules with ; between, such as account:billing requests=1000/s bytes=10MB/s; address:10.0.0.0/8 connections=100",
    lambda rules: "; ".join(map(str, rules)),
)
