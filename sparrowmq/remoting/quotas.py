"""Quotas: how much an account, a client address or a topic uses, and the refusal of more.

    request ── Dispatcher ── check: one request, its body and properties; by its account, address and topic
    messages in an answer ─── pulled: their bytes, which may leave a bucket with a debt
    a pull that waits, a new topic, a new connection: hold, create_topic, connect

A bucket holds what may be used at once and fills evenly. The time is that at which the request was read. A connection
keeps what applied to its last request, so the next one with the same topic costs some additions and no lookup.

A request that gets an error before its check counts too (`count_early_refusal`). While denied requests have used up the
quota of their address, its connections without an allowed request are refused before their signatures are checked
(`admit`). So keys cannot be guessed faster than the quota allows.

A refused send or other request gets SYSTEM_BUSY, and a pull FLOW_CONTROL: clients try both again. Heartbeats, and
requests of administrators, which other servers are, are never refused.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn, Protocol

from sparrowmq.core.safe_text import shown
from sparrowmq.core.stats import RecentEvents
from sparrowmq.errors import AccessDenied, RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.hosts import limit_key
from sparrowmq.protocol.names import MAX_TOPIC_LENGTH
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.peer import Peer, Principal
from sparrowmq.remoting.quota_rules import ACCOUNT, ADDRESS, EACH, LIMITS, TOPIC, Network, QuotaRule, Rate
from sparrowmq.remoting.session import Session

log = logging.getLogger(__name__)

MOST_KNOWN = 50_000  # accounts, addresses or topics; beyond, those that use nothing now are forgotten
_CHECKED_PER_NEW: Final = 8  # of them for each new one, which may be a name that no topic has
PORT_BYTES: Final = 4
_NETWORK_BITS: Final = 64  # an IPv6 network that counts as one address; see hosts.limit_key
_PULLS: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE})
# Without them a client would count as gone, and its queues would move.
_NEVER_REFUSED: Final = frozenset({RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT})
_CREATE_TOPIC: Final = int(RequestCode.UPDATE_AND_CREATE_TOPIC)


class CountedConnection(Protocol):
    """A connection of any port."""

    host: bytes  # the peer's, as `hosts.pack` encodes it

    def on_end(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(guest)` once when the connection has ended."""


class Bucket:
    """An allowance: `amount` at once, and as much again in each `seconds`."""

    __slots__ = ("_filled_s", "_max_amount", "_rate", "remaining")

    def __init__(self, amount: float, seconds: float, now: float) -> None:
        self.remaining = amount
        self._max_amount = amount
        self._rate = amount / seconds
        self._filled_s = now

    def take(self, amount: float, now: float) -> bool:
        """Use some, unless less than one is left. The last use may be larger than what is left."""
        if now > self._filled_s:
            self.remaining += (now - self._filled_s) * self._rate
            if self.remaining > self._max_amount:
                self.remaining = self._max_amount
            self._filled_s = now
        if self.remaining < 1.0:
            return False
        self.remaining -= amount
        return True

    def left_at(self, now: float) -> float:
        return self.remaining + (now - self._filled_s) * self._rate

    def is_full(self, now: float) -> bool:
        return self.left_at(now) >= self._max_amount


class Usage:
    """The use that one account, address or topic makes."""

    __slots__ = (
        "bytes",
        "denied_limit",
        "held_bytes",
        "max_held",
        "max_sessions",
        "name",
        "requests",
        "rule",
        "sessions",
        "topics",
    )

    def __init__(self, rule: QuotaRule, name: str, now: float) -> None:
        self.rule = rule
        self.name = name
        self.requests = _bucket(rule.rates.get("requests"), now)
        self.bytes = _bucket(rule.rates.get("bytes"), now)
        self.topics = _bucket(rule.rates.get("topics"), now)
        self.held_bytes = 0  # its pulls that wait
        self.max_held = rule.counts.get("held", -1)
        self.sessions: set[Peer] = set()  # the connections of an account, if these are limited
        self.max_sessions = rule.counts.get("connections", -1)
        self.denied_limit = (
            ""  # the limit that a denied request found used up; "" if there is none, or it may be free again
        )

    def take(self, size: int, now: float) -> str:
        """Use one request and its bytes. Returns the limit that is used up, or ""."""
        if self.requests is not None and not self.requests.take(1.0, now):
            return "requests"
        return "bytes" if self.bytes is not None and not self.bytes.take(size, now) else ""

    def still_denied(self, now: float) -> str:
        """Return the limit that denied requests have used up and that is not free again; or ""."""
        bucket = self.requests if self.denied_limit == "requests" else self.bytes
        if self.denied_limit and bucket is not None and bucket.left_at(now) >= 1.0:
            self.denied_limit = ""
        return self.denied_limit

    def is_idle(self, now: float) -> bool:
        buckets = (self.requests, self.bytes, self.topics)
        return (
            not self.held_bytes
            and not self.sessions
            and all(bucket is None or bucket.is_full(now) for bucket in buckets)
        )


def _bucket(rate: Rate | None, now: float) -> Bucket | None:
    return None if rate is None else Bucket(rate.amount, rate.seconds, now)


class AppliedQuotas:
    """The usages that applied to the last request of a connection: those of its account, address and topic."""

    __slots__ = ("epoch", "principal", "topic", "usages")

    def __init__(self, epoch: int, principal: Principal | None, topic: str | None, usages: list[Usage]) -> None:
        self.epoch = epoch  # of the quotas, when the usages were looked up
        self.principal = principal
        self.topic = topic
        self.usages = usages


class _Rules:
    """The rules for one kind of subject, and the usage of each that one of them is for."""

    def __init__(self, rules: list[QuotaRule], subject: str) -> None:
        self.rules = {rule.name: rule for rule in rules if rule.subject == subject}
        networks = [(rule.network, rule) for rule in self.rules.values() if rule.network is not None]
        self.networks: list[tuple[Network, QuotaRule]] = sorted(
            networks, key=lambda pair: pair[0].max_prefixlen - pair[0].prefixlen
        )
        # Those inside one network that would count as one address.
        self._address_networks = [
            network for network, _ in networks if network.version == 6 and network.prefixlen > _NETWORK_BITS
        ]
        self.usages: OrderedDict[Any, Usage | None] = OrderedDict()
        self._crowd_usages: dict[str, Usage] = {}

    def find(self, key: str | bytes, now: float) -> Usage | None:
        """Return the usage of an account, an address (by `limit_key`) or a topic; None if no rule is for it. If
        MOST_KNOWN use something now, further ones of the same rule have one usage together.
        """
        rule = self._rule(key) or self.rules.get(EACH)
        if len(self.usages) >= MOST_KNOWN:
            if rule is None:
                return None
            if rule.name not in self._crowd_usages:
                self._crowd_usages[rule.name] = Usage(rule, f"beyond {MOST_KNOWN} others", now)
            return self._crowd_usages[rule.name]
        name = str(key)
        if isinstance(key, bytes):
            is_network = PORT_BYTES < len(key) < 16
            name = f"{_address(key)}/{_NETWORK_BITS}" if is_network else str(_address(key))
        usage = self.usages[key] = None if rule is None else Usage(rule, name, now)
        return usage

    def limit_key(self, address: bytes) -> bytes:
        """Return the address or network that has one usage. A rule for a part of a network has one for each address."""
        key = limit_key(address)
        is_own = len(key) > PORT_BYTES and any(_address(address) in part for part in self._address_networks)
        return address if is_own else key

    def make_room(self, now: float) -> None:
        """Look at some usages, and forget those that use nothing now."""
        for _ in range(min(_CHECKED_PER_NEW, len(self.usages))):
            key, usage = self.usages.popitem(last=False)
            if usage is not None and not usage.is_idle(now):
                self.usages[key] = usage

    def _rule(self, key: str | bytes) -> QuotaRule | None:
        if isinstance(key, str):
            return self.rules.get(key)
        address = _address(key)
        return next((rule for network, rule in self.networks if address in network), None)


def _address(key: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(key if len(key) == PORT_BYTES else key.ljust(16, b"\0"))


class Quotas:
    """The quotas of a server."""

    def __init__(self, clock: Clock, rules: Iterable[QuotaRule] = ()) -> None:
        self.is_on = False  # whether there are rules
        # The number of refusals by subject and limit.
        self.refused = {(subject, limit): 0 for subject, limits in LIMITS.items() for limit in limits}
        self._clock = clock
        self.recent_refusals = RecentEvents(clock)  # the latest refusal, if there was one within the last seconds
        self._log_limit = LogLimit(clock)
        self._rules: tuple[QuotaRule, ...] = ()
        self._epoch = 0  # rises when usages that connections keep may have been replaced
        self._open_counts: dict[bytes, int] = {}  # connections by address, and by network of IPv6
        self._set_rules(tuple(rules))

    def apply_rules(self, rules: tuple[QuotaRule, ...]) -> None:
        """Apply other rules; what was used before does not count."""
        if rules != self._rules:
            self.recent_refusals.forget()
            self._set_rules(rules)

    def _set_rules(self, rules: tuple[QuotaRule, ...]) -> None:
        self._rules = rules
        self._accounts, self._addresses, self._topics = (
            _Rules(list(rules), subject) for subject in (ACCOUNT, ADDRESS, TOPIC)
        )
        self.is_on = len(rules) > 0
        self._has_topics = len(self._topics.rules) > 0
        self._epoch += 1

    def check(self, session: Session, command: Command, header: Request[Any]) -> None:
        """Count a request. Raises: RemoteError, a quota is used up."""
        topic: str | None = getattr(header, "topic", None) if self._has_topics else None
        applied: AppliedQuotas | None = session.applied_quotas
        if (
            applied is None
            or applied.epoch != self._epoch
            or applied.principal is not session.principal
            or applied.topic != topic
        ):
            usages = self._usages(session.host, session.principal, topic or "", session.last_read)
            applied = AppliedQuotas(self._epoch, session.principal, topic, usages)
            session.applied_quotas = applied
        size = _size(command, header)
        for usage in applied.usages:
            self._use(usage, session, command, size)
        if command.code == _CREATE_TOPIC:
            self.create_topic(session)

    def admit(self, host: bytes, now: float) -> None:
        """Refuse a client without an allowed request while denied ones use up its address. Raises: RemoteError."""
        usage = self._usage_of_address(host, now) if self._addresses.rules else None
        limit = usage.still_denied(now) if usage is not None else ""
        if usage is not None and limit:
            self._count(usage, limit)
            _raise_used_up(usage, limit, 0)

    def count_early_refusal(
        self, session: Session, command: Command, header: Request[Any] | None, error: Exception
    ) -> None:
        """Count a request that got an error before its check. Raises: RemoteError, a quota is used up."""
        size = _size(command, header)
        if isinstance(error, AccessDenied):
            session.applied_quotas = None
            self.count_denied(session.host, session.principal, size, session.last_read)
            return
        for usage in self._usages(session.host, session.principal, "", session.last_read):
            self._use(usage, session, command, size)

    def count_denied(self, host: bytes, principal: Principal | None, size: int, now: float) -> None:
        for usage in self._usages(host, principal, "", now):
            usage.denied_limit = usage.take(size, now)
            if usage.denied_limit:
                self._refuse(usage, usage.denied_limit, 0)

    def count_pulled(self, peer: Peer, topic: str, size: int, usages: list[Usage] | None = None) -> None:
        """Count the bytes of messages in an answer. `usages` is what `hold` returned, if the request has waited: its
        connection may have other requests by now.
        """
        now = self._clock.monotonic()
        for usage in usages if usages is not None else self._usages(peer.host, peer.principal, topic, now):
            if usage.bytes is not None and not usage.bytes.take(size, now):
                usage.bytes.remaining -= size

    def hold(self, peer: Peer, topic: str) -> list[Usage]:
        """Count a pull that waits. Give the result to `release` when it waits no more. Raises: RemoteError."""
        usages = self._usages(peer.host, peer.principal, topic, self._clock.monotonic())
        for usage in usages:
            if 0 <= usage.max_held <= usage.held_bytes:
                self._refuse(usage, "held", RequestCode.PULL_MESSAGE)
        for usage in usages:
            usage.held_bytes += 1
        return usages

    def create_topic(self, peer: Peer) -> None:
        now = self._clock.monotonic()
        for usage in self._usages(peer.host, peer.principal, "", now):
            if usage.topics is not None and not usage.topics.take(1.0, now):
                self._refuse(usage, "topics", 0)

    def connect(self, connection: CountedConnection) -> bool:
        """Count a connection of an address until it ends, also without rules. Returns whether it may stay."""
        usage = self._usage_of_address(connection.host, self._clock.monotonic()) if self._addresses.rules else None
        if usage is not None:
            key = self._addresses.limit_key(connection.host[:-PORT_BYTES])
            if 0 <= usage.max_sessions <= self._open_counts.get(key, 0):
                self._count(usage, "connections")
                return False
        for key in _open_keys(connection):
            self._open_counts[key] = self._open_counts.get(key, 0) + 1
        connection.on_end(self._on_end)
        return True

    def _on_end(self, connection: CountedConnection) -> None:
        for key in _open_keys(connection):
            self._open_counts[key] -= 1
            if self._open_counts[key] == 0:
                del self._open_counts[key]

    def _usage_of_address(self, host: bytes, now: float) -> Usage | None:
        return self._usage_of(self._addresses, self._addresses.limit_key(host[:-PORT_BYTES]), now)

    def _usage_of(self, rules: _Rules, key: str | bytes, now: float) -> Usage | None:
        if key in rules.usages:
            return rules.usages[key]
        if len(rules.usages) >= MOST_KNOWN:
            rules.make_room(now)
            self._epoch += 1
        return rules.find(key, now)

    def _usages(self, host: bytes, principal: Principal | None, topic: str, now: float) -> list[Usage]:
        if principal is not None and principal.is_admin:
            return []
        usages = [self._usage_of_address(host, now)] if self._addresses.rules else []
        if principal is not None and self._accounts.rules:
            usages.append(self._usage_of(self._accounts, principal.access_key, now))
        if topic and self._topics.rules and len(topic) <= MAX_TOPIC_LENGTH:
            usages.append(self._usage_of(self._topics, topic, now))
        return [usage for usage in usages if usage is not None]

    def _use(self, usage: Usage, session: Session, command: Command, size: int) -> None:
        limit = usage.take(size, session.last_read)
        if limit:
            self._refuse(usage, limit, command.code)
        if usage.rule.subject == ACCOUNT and usage.max_sessions >= 0 and session not in usage.sessions:
            if len(usage.sessions) >= usage.max_sessions:
                self._refuse(usage, "connections", command.code)
            else:
                usage.sessions.add(session)
                session.on_end(usage.sessions.discard)

    def _refuse(self, usage: Usage, limit: str, code: int) -> None:
        if code in _NEVER_REFUSED:
            return
        self._count(usage, limit)
        _raise_used_up(usage, limit, code)

    def _count(self, usage: Usage, limit: str) -> None:
        rule = usage.rule
        key = (rule.subject, limit)
        self.refused[key] += 1
        text = f"{rule.subject} {shown(usage.name)} has {limit}={rule.limits[limit]}"
        self.recent_refusals.note(f"requests are refused: {text}")
        self._log_limit.log(log, logging.WARNING, "a quota is used up: %s", text)


def _size(command: Command, header: Request[Any] | None) -> int:
    properties: str | None = getattr(header, "properties", None)
    return len(command.body) + len(properties or "")


def _open_keys(connection: CountedConnection) -> set[bytes]:
    address = connection.host[:-PORT_BYTES]
    return {address, limit_key(address)}


def release(usages: list[Usage]) -> None:
    for usage in usages:
        usage.held_bytes -= 1


def _raise_used_up(usage: Usage, limit: str, code: int) -> NoReturn:
    rule = usage.rule
    raise RemoteError(
        ResponseCode.FLOW_CONTROL if code in _PULLS else ResponseCode.SYSTEM_BUSY,
        f"the quota of {rule.subject} {shown(usage.name)} is used up: {limit}={rule.limits[limit]}; try again in a "
        "moment, or ask the operator for a larger one (setting quotas)",
    )
