"""Quotas: how much an account, a client address or a topic uses, and the refusal of more.

    request ── Dispatcher ── check: one request, its body and properties; by its account, address and topic
    messages in an answer ─── pulled: their bytes, which may leave a bucket with a debt
    a pull that waits, a new topic, a new connection: hold, create_topic, connect

A bucket holds what may be used at once and fills evenly. The time is that at which the request was read, so a check
costs no reading of the clock. A connection keeps what applied to its last request, so the next one with the same topic
costs some additions and no lookup. Without rules a broker asks nothing.

A request that gets an error before its check, such as one with a wrong signature, counts too (`turned_away`). While
denied requests have used up the quota of their address, its connections without an allowed request are refused before
their signatures are checked (`admit`). So keys cannot be guessed faster than the quota allows.

A refused send or other request gets SYSTEM_BUSY, and a pull FLOW_CONTROL: clients try both again. Requests of
administrators and heartbeats are never refused; neither are servers of the cluster, which have accounts of
administrators.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from sparrowmq.core.safe_text import shown
from sparrowmq.core.stats import RecentEvents
from sparrowmq.errors import AccessDenied, RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.hosts import counted
from sparrowmq.protocol.names import MAX_TOPIC_LENGTH
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.peer import Peer, Principal
from sparrowmq.remoting.quota_rules import ACCOUNT, ADDRESS, EACH, LIMITS, TOPIC, Network, QuotaRule, Rate
from sparrowmq.remoting.session import Session

if TYPE_CHECKING:
    from mypy_extensions import i64  # compiled, it is the processor's own integer

log = logging.getLogger(__name__)

MOST_KNOWN = 50_000  # accounts, addresses or topics; beyond, those that use nothing now are forgotten
_LOOKS: Final = 8  # of them for each new one, which may be a name that no topic has
PORT_BYTES: Final = 4
_NETWORK_BITS: Final = 64  # an IPv6 network that counts as one address; see hosts.counted
_PULLS: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE})
# Without them a client would count as gone, and its queues would move.
_NEVER_REFUSED: Final = frozenset({RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT})
_CREATE_TOPIC: Final = 17  # UPDATE_AND_CREATE_TOPIC; as a literal it is compiled in


class Guest(Protocol):
    """A connection of any port.

    Attributes:
        host: the peer's, as `hosts.pack` encodes it.
    """

    host: bytes

    def on_end(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(guest)` once when the connection has ended."""


class Bucket:
    """An allowance: `amount` at once, and as much again in each `seconds`."""

    __slots__ = ("_at", "_most", "_rate", "left")

    def __init__(self, amount: float, seconds: float, now: float) -> None:
        self.left = amount
        self._most = amount
        self._rate = amount / seconds
        self._at = now

    def take(self, amount: float, now: float) -> bool:
        """Use some, unless less than one is left. The last use may be larger than what is left."""
        if now > self._at:
            self.left += (now - self._at) * self._rate
            if self.left > self._most:
                self.left = self._most
            self._at = now
        if self.left < 1.0:
            return False
        self.left -= amount
        return True

    def has_one(self, now: float) -> bool:
        """Whether the next use is allowed."""
        return self.left + (now - self._at) * self._rate >= 1.0

    def is_full(self, now: float) -> bool:
        """Whether nothing of it is in use."""
        return self.left + (now - self._at) * self._rate >= self._most


class Usage:
    """The use that one account, address or topic makes.

    Attributes:
        held_bytes: its pulls that wait.
        sessions: the connections of an account, if these are limited.
        denied: the limit that a denied request found used up; "" if there is none, or it may be free again.
    """

    __slots__ = (
        "bytes",
        "denied",
        "held_bytes",
        "held_most",
        "name",
        "requests",
        "rule",
        "sessions",
        "sessions_most",
        "topics",
    )

    def __init__(self, rule: QuotaRule, name: str, now: float) -> None:
        self.rule = rule
        self.name = name
        self.requests = _bucket(rule.rates.get("requests"), now)
        self.bytes = _bucket(rule.rates.get("bytes"), now)
        self.topics = _bucket(rule.rates.get("topics"), now)
        self.held_bytes = 0
        self.held_most = rule.counts.get("held", -1)
        self.sessions: set[Peer] = set()
        self.sessions_most = rule.counts.get("connections", -1)
        self.denied = ""

    def take(self, size: int, now: float) -> str:
        """Use one request and its bytes. Returns the limit that is used up, or ""."""
        if self.requests is not None and not self.requests.take(1.0, now):
            return "requests"
        return "bytes" if self.bytes is not None and not self.bytes.take(size, now) else ""

    def still_denied(self, now: float) -> str:
        """Return the limit that denied requests have used up and that is not free again; or ""."""
        bucket = self.requests if self.denied == "requests" else self.bytes
        if self.denied and bucket is not None and bucket.has_one(now):
            self.denied = ""
        return self.denied

    def is_idle(self, now: float) -> bool:
        """Whether nothing is lost if this is forgotten."""
        buckets = (self.requests, self.bytes, self.topics)
        return not self.held_bytes and not self.sessions and all(each is None or each.is_full(now) for each in buckets)


def _bucket(rate: Rate | None, now: float) -> Bucket | None:
    return None if rate is None else Bucket(rate.amount, rate.seconds, now)


class Applied:
    """The usages that applied to the last request of a connection: those of its account, address and topic.

    Attributes:
        epoch: of the quotas, when the usages were looked up.
    """

    __slots__ = ("epoch", "principal", "topic", "usages")

    def __init__(self, epoch: i64, principal: Principal | None, topic: str | None, usages: list[Usage]) -> None:
        self.epoch = epoch
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
        self._parts = [network for network, _ in networks if network.version == 6 and network.prefixlen > _NETWORK_BITS]
        self.usages: OrderedDict[Any, Usage | None] = OrderedDict()
        self._crowds: dict[str, Usage] = {}

    def find(self, key: str | bytes, now: float) -> Usage | None:
        """Return the usage of an account, an address (by `counted`) or a topic; None if no rule is for it.

        If MOST_KNOWN use something now, further ones of the same rule have one usage together.
        """
        rule = self._rule(key) or self.rules.get(EACH)
        if len(self.usages) >= MOST_KNOWN:
            if rule is None:
                return None
            if rule.name not in self._crowds:
                self._crowds[rule.name] = Usage(rule, f"beyond {MOST_KNOWN} others", now)
            return self._crowds[rule.name]
        name = key if isinstance(key, str) else _name(key)
        found = self.usages[key] = None if rule is None else Usage(rule, name, now)
        return found

    def counted(self, address: bytes) -> bytes:
        """Return the address or network that has one usage. A rule for a part of a network has one for each address."""
        key = counted(address)
        is_own = len(key) > PORT_BYTES and any(_address(address) in part for part in self._parts)
        return address if is_own else key

    def make_room(self, now: float) -> None:
        """Look at some usages, and forget those that use nothing now."""
        for _ in range(min(_LOOKS, len(self.usages))):
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


def _name(key: bytes) -> str:
    is_network = PORT_BYTES < len(key) < 16
    return f"{_address(key)}/{_NETWORK_BITS}" if is_network else str(_address(key))


class Quotas:
    """The quotas of a server.

    Attributes:
        is_on: whether there are rules.
        refused: the number of refusals by subject and limit.
        recent: the latest refusal, if there was one within the last seconds.
    """

    def __init__(self, clock: Clock, rules: Iterable[QuotaRule] = ()) -> None:
        self.is_on = False
        self.refused = {(subject, limit): 0 for subject, limits in LIMITS.items() for limit in limits}
        self._clock = clock
        self.recent = RecentEvents(clock)
        self._lines = LogLimit(clock)
        self._rules: tuple[QuotaRule, ...] = ()
        self._epoch: i64 = 0  # rises when usages that connections keep may have been replaced
        self._open: dict[bytes, int] = {}  # connections by address, and by network of IPv6
        self._set(tuple(rules))

    def apply_rules(self, rules: tuple[QuotaRule, ...]) -> None:
        """Apply other rules; what was used before does not count."""
        if rules != self._rules:
            self.recent.forget()
            self._set(rules)

    def _set(self, rules: tuple[QuotaRule, ...]) -> None:
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
        applied: Applied | None = session.applied_quotas
        if (
            applied is None
            or applied.epoch != self._epoch
            or applied.principal is not session.principal
            or applied.topic != topic
        ):
            usages = self._usages(session.host, session.principal, topic or "", session.last_read)
            applied = Applied(self._epoch, session.principal, topic, usages)
            session.applied_quotas = applied
        size = _size(command, header)
        for usage in applied.usages:
            self._use(usage, session, command, size)
        if command.code == _CREATE_TOPIC:
            self.create_topic(session)

    def admit(self, host: bytes, now: float) -> None:
        """Refuse a client without an allowed request while denied ones use up its address. Raises: RemoteError."""
        usage = self._of_address(host, now) if self._addresses.rules else None
        limit = usage.still_denied(now) if usage is not None else ""
        if usage is not None and limit:
            self._count(usage, limit)
            _raise(usage, limit, 0)

    def turned_away(self, session: Session, command: Command, header: Request[Any] | None, error: Exception) -> None:
        """Count a request that got an error before its check. Raises: RemoteError, a quota is used up."""
        size = _size(command, header)
        if isinstance(error, AccessDenied):
            session.applied_quotas = None
            self.denied(session.host, session.principal, size, session.last_read)
            return
        for usage in self._usages(session.host, session.principal, "", session.last_read):
            self._use(usage, session, command, size)

    def denied(self, host: bytes, principal: Principal | None, size: int, now: float) -> None:
        """Count a denied request. Raises: RemoteError, a quota is used up."""
        for usage in self._usages(host, principal, "", now):
            usage.denied = usage.take(size, now)
            if usage.denied:
                self._refuse(usage, usage.denied, 0)

    def pulled(self, peer: Peer, topic: str, size: int, usages: list[Usage] | None = None) -> None:
        """Count the bytes of messages in an answer. `usages` is the result of `hold`, if the request has waited: its
        connection may have other requests by now, of other accounts.
        """
        now = self._clock.monotonic()
        for usage in usages if usages is not None else self._usages(peer.host, peer.principal, topic, now):
            if usage.bytes is not None and not usage.bytes.take(size, now):
                usage.bytes.left -= size

    def hold(self, peer: Peer, topic: str) -> list[Usage]:
        """Count a pull that waits. Give the result to `release` when it waits no more. Raises: RemoteError."""
        usages = self._usages(peer.host, peer.principal, topic, self._clock.monotonic())
        for usage in usages:
            if 0 <= usage.held_most <= usage.held_bytes:
                self._refuse(usage, "held", RequestCode.PULL_MESSAGE)
        for usage in usages:
            usage.held_bytes += 1
        return usages

    def create_topic(self, peer: Peer) -> None:
        """Count a topic that a client creates. Raises: RemoteError."""
        now = self._clock.monotonic()
        for usage in self._usages(peer.host, peer.principal, "", now):
            if usage.topics is not None and not usage.topics.take(1.0, now):
                self._refuse(usage, "topics", 0)

    def connect(self, guest: Guest) -> bool:
        """Count a connection of an address until it ends, also without rules. Returns whether it may stay."""
        usage = self._of_address(guest.host, self._clock.monotonic()) if self._addresses.rules else None
        if usage is not None:
            key = self._addresses.counted(guest.host[:-PORT_BYTES])
            if 0 <= usage.sessions_most <= self._open.get(key, 0):
                self._count(usage, "connections")
                return False
        for key in _open_keys(guest):
            self._open[key] = self._open.get(key, 0) + 1
        guest.on_end(self._left)
        return True

    # Inside ---------------------------------------------------------------------------------------------------------

    def _left(self, guest: Guest) -> None:
        for key in _open_keys(guest):
            self._open[key] -= 1
            if self._open[key] == 0:
                del self._open[key]

    def _of_address(self, host: bytes, now: float) -> Usage | None:
        return self._of(self._addresses, self._addresses.counted(host[:-PORT_BYTES]), now)

    def _of(self, rules: _Rules, key: str | bytes, now: float) -> Usage | None:
        if key in rules.usages:
            return rules.usages[key]
        if len(rules.usages) >= MOST_KNOWN:
            rules.make_room(now)
            self._epoch += 1
        return rules.find(key, now)

    def _usages(self, host: bytes, principal: Principal | None, topic: str, now: float) -> list[Usage]:
        if principal is not None and principal.is_admin:
            return []
        found = [self._of_address(host, now)] if self._addresses.rules else []
        if principal is not None and self._accounts.rules:
            found.append(self._of(self._accounts, principal.access_key, now))
        if topic and self._topics.rules and len(topic) <= MAX_TOPIC_LENGTH:
            found.append(self._of(self._topics, topic, now))
        return [usage for usage in found if usage is not None]

    def _use(self, usage: Usage, session: Session, command: Command, size: int) -> None:
        limit = usage.take(size, session.last_read)
        if limit:
            self._refuse(usage, limit, command.code)
        if usage.rule.subject == ACCOUNT and usage.sessions_most >= 0 and session not in usage.sessions:
            if len(usage.sessions) >= usage.sessions_most:
                self._refuse(usage, "connections", command.code)
            else:
                usage.sessions.add(session)
                session.on_end(usage.sessions.discard)

    def _refuse(self, usage: Usage, limit: str, code: int) -> None:
        if code in _NEVER_REFUSED:
            return
        self._count(usage, limit)
        _raise(usage, limit, code)

    def _count(self, usage: Usage, limit: str) -> None:
        rule = usage.rule
        key = (rule.subject, limit)
        self.refused[key] += 1
        text = f"{rule.subject} {shown(usage.name)} has {limit}={rule.limits[limit]}"
        self.recent.note(f"requests are refused: {text}")
        self._lines.log(log, logging.WARNING, "a quota is used up: %s", text)


def _size(command: Command, header: Request[Any] | None) -> int:
    properties: str | None = getattr(header, "properties", None)
    return len(command.body) + len(properties or "")


def _open_keys(guest: Guest) -> set[bytes]:
    address = guest.host[:-PORT_BYTES]
    return {address, counted(address)}


def release(usages: list[Usage]) -> None:
    for usage in usages:
        usage.held_bytes -= 1


def _raise(usage: Usage, limit: str, code: int) -> NoReturn:
    rule = usage.rule
    raise RemoteError(
        ResponseCode.FLOW_CONTROL if code in _PULLS else ResponseCode.SYSTEM_BUSY,
        f"the quota of {rule.subject} {shown(usage.name)} is used up: {limit}={rule.limits[limit]}; try again in a "
        "moment, or ask the operator for a larger one (setting quotas)",
    )
