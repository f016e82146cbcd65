"""The master's side of replication: a port for slaves, and the effect of slaves on the answers to sends.

    SYNC_MASTER    an answer waits until a slave has the message        FLUSH_SLAVE_TIMEOUT (12) after slaveTimeout
                   ... if a slave is near the log's end                 SLAVE_NOT_AVAILABLE (11) at once if none is,
                                                                        or when the last one leaves
    ASYNC_MASTER   no answer waits, and slaves follow as they can

The master sends the log exactly as it is in the files. With SYNC_FLUSH it sends only what is on disk: so after a power
cut no slave has records that its master lost. Unlike Java, which sends written data at once with SYNC_FLUSH too. A
slave is near enough if it lacks less than haSlaveFallbehindMax.

The port for slaves:

    haListenPort=        listenPort + 1, if it is free; otherwise the log of the broker has a warning
    haListenPort=10912   this port, or the broker does not start
    haListenPort=off     none

A SYNC_MASTER needs this port, and a slave has none. Any host that reaches the port can read all messages. So with
access control or tls.server.mode=enforcing it lets only slaves in that know the haSecret, which Java's do not support.

tls.server.mode decides about TLS as at listenPort, with the same certificates. A slave encrypts as it does to its name
servers, by tls.enable. Java's replication has no TLS.
Source: HAService, HAService.AcceptSocketService, CommitLog.submitReplicaRequest and
BrokerStartup.createBrokerController, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.failover.in_sync import InSync
from sparrowmq.broker.part import Chore, Part, Task
from sparrowmq.broker.replication.slave_link import ShippingRules, SlaveLink, lag_s
from sparrowmq.core import descriptors
from sparrowmq.errors import ConfigError, NoSlaveNear
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.durability import Durability, Requirement
from sparrowmq.loop.watermark import Watermark
from sparrowmq.metrics.condition_kinds import NO_SLAVE, SECRET_MISSING, SECRET_SHORT, SLAVE_BEHIND, SLAVE_GONE
from sparrowmq.metrics.figures import Figures, Rows
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.bodies import HaStatus, SlaveState
from sparrowmq.remoting.listener import LimitedSessions, Listener, check_not_public
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.tls.contexts import ServerTls
from sparrowmq.remoting.tls.encryption import Opening
from sparrowmq.remoting.tls.tls_settings import TlsMode
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush

log = logging.getLogger(__name__)

PORTS_ABOVE: Final = 1
_MAX_PORT: Final = 65535
BEHIND_S: Final = 30.0
MIN_SECRET_CHARS: Final = 20  # characters: as hexadecimal digits 80 bits, too many to try out
NAMES_S: Final = 5.0
FOLLOW_S: Final = 10.0  # the members that were in sync before an election should follow within this time


@dataclass(frozen=True)
class HaMasterRules:
    """The waiting and sending rules of a master.

    Attributes:
        is_sync: whether answers wait for a slave (brokerRole=SYNC_MASTER).
        timeout_s: the limit of that wait (slaveTimeout).
        nearest_bytes: answers do not wait for a slave that lacks this much or more (haSlaveFallbehindMax).
    """

    is_sync: bool = False
    timeout_s: float = 1.5
    nearest_bytes: int = 256 << 20
    shipping: ShippingRules = field(default_factory=ShippingRules)


class HaMaster:
    """Serve the slaves of one master, which connect to `listener`.

    `slave_addresses` returns the brokers of the same name. At least one slave has the log up to `replicated`.
    """

    def __init__(
        self,
        store: MessageStore,
        listener: Listener,
        clock: Clock,
        rules: HaMasterRules,
        figures: Figures,
        in_sync: InSync | None = None,
        tls: ServerTls | None = None,
        slave_addresses: Callable[[], Awaitable[Mapping[int, str]]] | None = None,
    ) -> None:
        self.replicated = in_sync.replicated if in_sync is not None else Watermark()
        self._store = store
        self._listener = listener
        self._clock = clock
        self._rules = rules
        self._shipped_end = store.flushed if store.settings.flush is Flush.SYNC else store.written
        self._in_sync = in_sync
        self._tls = tls
        self._slave_addresses = slave_addresses
        self._log_limit = LogLimit(clock)
        limit = descriptors.limit()
        self._max_links = descriptors.small_port_limit(descriptors.MAX_SLAVES, limit)
        self._limited_sessions = LimitedSessions[SlaveLink](self._max_links, clock, lambda link: link.acked is not None)
        self.links = self._limited_sessions.sessions  # the oldest first
        self._backlog = descriptors.small_port_limit(descriptors.SMALL_BACKLOG, limit)
        self._max_following = 0  # slaves that followed at the same time
        self._lead_begin_s = clock.monotonic()
        self._followed_members: set[int] = set()  # the members that have followed
        # The slaves that have left since all followed, as far as they were known.
        self._missing_addresses: set[str] = set()
        if in_sync is not None:
            in_sync.shipped = self._shipped_end
            in_sync.log_end = lambda: store.end
            self._update_visible_end = store.limit_visibility(in_sync.visible_end)
            in_sync.on_advance = self._show_visible_end
        if rules.is_sync:
            store.also_wait_for(self._durability())
        figures.gauge("sparrowmq_slaves", "slaves of this master", lambda: len(self._following()))
        figures.gauges("sparrowmq_slave_behind_bytes", "bytes that a slave lacks", ("slave",), self._bytes_behind)
        figures.gauges(
            "sparrowmq_slave_lag_seconds", "age of the oldest message that a slave lacks", ("slave",), self._lags
        )

    def part(self) -> Part:
        period_s = min(self._rules.shipping.heartbeat_s, self._rules.shipping.silence_s) / 4
        tasks = [Task("slaves", self.run)]
        if self._in_sync is not None:
            tasks.append(Task("in sync", self._in_sync.run))
        probes = (
            (NO_SLAVE, self._no_slave),
            (SLAVE_GONE, self._slave_gone),
            (SLAVE_BEHIND, self._slave_behind),
            (SECRET_MISSING, self._secret_missing),
            (SECRET_SHORT, self._secret_short),
        )
        chores = (Chore("slaves", period_s, self.check_links), Chore("names of slaves", NAMES_S, self.name_slaves))
        return Part(chores=chores, tasks=tuple(tasks), probes=probes)

    def status(self) -> HaStatus:
        slaves = [self._slave_state(link, link.acked) for link in self.links if link.acked is not None]
        in_sync = sum(state.in_sync for state in slaves)
        return HaStatus(True, self._shipped_end.value, in_sync, slaves)

    def _slave_state(self, link: SlaveLink, acked: int) -> SlaveState:
        lacks = self._shipped_end.value - acked
        is_near = lacks < self._rules.nearest_bytes
        return SlaveState(link.address, acked, lacks, is_near, link.speed, link.position)

    def _secret_missing(self) -> str:
        if self._rules.shipping.secret != "":
            return ""
        return (
            "no slave is let in: with access control or tls.server.mode=enforcing a slave must know haSecret, which is "
            "not set"
        )

    def _secret_short(self) -> str:
        """Return whether the secret is so short that the proof of it, which any stranger gets, helps to guess it."""
        secret = self._rules.shipping.secret
        if not secret or len(secret) >= MIN_SECRET_CHARS:
            return ""
        return (
            f"haSecret has {len(secret)} characters, and strangers at haListenPort get what is needed to guess it; "
            f"{MIN_SECRET_CHARS} random ones are enough"
        )

    def _no_slave(self) -> str:
        if self._following() or not self._rules.is_sync or self._is_alone() or not self._leads:
            return ""
        return f"no slave follows{self._missing_slaves()}"

    def _slave_gone(self) -> str:
        """Return which slave is missing: of those that followed at the same time, or were in sync at the election."""
        if not self._leads:
            return ""
        count, absent_members = len(self._following()), len(self._absent_members())
        self._max_following = max(self._max_following, count)
        if count == self._max_following:
            self._missing_addresses.clear()
            if not absent_members:
                return ""
        return f"{count} of {max(self._max_following, count + absent_members)} slaves follow{self._missing_slaves()}"

    def _absent_members(self) -> list[str]:
        if self._in_sync is None or self._clock.age(self._lead_begin_s) < FOLLOW_S:
            return []
        return [f"member {number}" for number in sorted(self._in_sync.inherited - self._followed_members)]

    def _missing_slaves(self) -> str:
        gone = [
            *sorted(self._missing_addresses - {link.description for link in self._following()}),
            *self._absent_members(),
        ]
        return f"; gone: {', '.join(gone)}" if gone else ""

    def _slave_behind(self) -> str:
        now_ms = self._clock.now_ms()
        lags = [
            (lag_s(self._store, link.acked, now_ms), self._shipped_end.value - link.acked, link.description)
            for link in self.links
            if link.acked is not None
        ]
        lag, lacks, slave = max(lags, default=(0.0, 0, ""))
        return f"{slave} lacks {lacks} bytes, the oldest since {lag:.0f} s" if lag > BEHIND_S else ""

    @property
    def _leads(self) -> bool:
        """Whether this is still the master: slaves leave an elected one that is about to become a slave."""
        return self._in_sync is None or self._in_sync.leads

    def _is_alone(self) -> bool:
        return self._in_sync is not None and self._in_sync.is_alone

    async def run(self) -> None:
        """Accept slaves until cancelled, then close their connections. Raises: ConfigError, the port cannot be used."""
        await self._listener.serve(self._accept, self._backlog, self.links)

    async def name_slaves(self) -> None:
        nameless = [link for link in self._following() if link.registered is None]
        if not nameless or self._slave_addresses is None:
            return
        slave_addresses = {number: address for number, address in (await self._slave_addresses()).items() if number}
        hosts = Counter(link.host for link in self._following())
        for link in nameless:
            if link.member is not None or hosts[link.host] == 1:
                link.registered = slave_of(link.host, link.member, slave_addresses)

    def check_links(self) -> None:
        for link in list(self.links):
            link.check()

    def lacks(self, target: int) -> NoSlaveNear | None:
        """Return why a wait for a slave to have the log up to `target` is useless; None if it is not."""
        following = self._following()
        nearest = max([acked for link in following if (acked := link.acked) is not None], default=0)
        if following and target - nearest < self._rules.nearest_bytes:
            return None
        problem = f"the nearest slave lacks {target - nearest} bytes" if following else "no slave is connected"
        return NoSlaveNear(ResponseCode.SLAVE_NOT_AVAILABLE, problem, 0)

    def _durability(self) -> Durability:
        description = "at a slave"
        lacks = self._in_sync.lacks if self._in_sync is not None else self.lacks
        requirement = Requirement(self.replicated, ResponseCode.FLUSH_SLAVE_TIMEOUT, description, lacks)
        return Durability((requirement,), self._clock, self._rules.timeout_s)

    def _show_visible_end(self) -> None:
        self._update_visible_end()
        for link in self.links:
            link.send_visible_end_soon()

    def _accept(self) -> SlaveLink | Opening:
        link = SlaveLink(
            self._store,
            self._shipped_end,
            self._clock,
            self._rules.shipping,
            self._on_acknowledgement,
            self._on_link_end,
            self._in_sync.visible_end if self._in_sync is not None else lambda: 0,
            self._log_limit,
        )
        oldest_link = self._limited_sessions.add(link)
        if oldest_link is not None:
            oldest_link.close(f"{self._max_links} connections are the most that there may be")
        return link if self._tls is None else Opening(link, self._tls, self._clock, is_silent=True)

    def _on_acknowledgement(self, link: SlaveLink) -> None:
        if link.acked is None:
            return
        if self._in_sync is None:
            if link.is_confirmed:
                self.replicated.advance(link.acked)
        elif link.member is not None:
            self._followed_members.add(link.member)
            for other in [other for other in self.links if other.member == link.member and other is not link]:
                other.close("it has come again")
                self._on_link_end(other)
            if self._in_sync.may_connect(link.member):
                self._in_sync.note_report(link.member, link.acked if link.is_confirmed else self._store.begin)
            else:
                link.close("etcd still has it in sync, by its connection before; it can come again at once")

    def _on_link_end(self, link: SlaveLink) -> None:
        if link in self.links:
            self._limited_sessions.discard(link)
            if link.registered is not None:
                self._missing_addresses.add(link.description)
            if self._in_sync is not None:
                if link.member is not None and link.acked is not None:
                    self._in_sync.note_disconnected(link.member)
            elif (lacks := self.lacks(self.replicated.value)) is not None:
                # The waiting sends would only wait for their timeout.
                self.replicated.refuse(lacks)

    def _following(self) -> list[SlaveLink]:
        return [link for link in self.links if link.acked is not None]

    def _lags(self) -> Rows:
        now_ms = self._clock.now_ms()
        return [
            ((link.label,), lag_s(self._store, link.acked, now_ms)) for link in self.links if link.acked is not None
        ]

    def _bytes_behind(self) -> Rows:
        return [((link.label,), self._shipped_end.value - link.acked) for link in self.links if link.acked is not None]


def check_role(settings: BrokerSettings) -> None:
    """Check that the settings fit the broker's role. Raises: ConfigError.

    Unlike Java, which gives every master the id 0: a slave without brokerRole then takes its master's place.
    """
    role, broker_id = settings.role, settings.broker_id
    if settings.ha_silence_ms <= settings.ha_heartbeat_ms:
        raise ConfigError(
            f"haHousekeepingInterval = {settings.ha_silence_ms} ms would end each connection between two signs of "
            f"life, which come every {settings.ha_heartbeat_ms} ms (haSendHeartbeatInterval); give it several times "
            "as much"
        )
    if settings.is_slave and broker_id == 0:
        raise ConfigError("brokerId = 0 is a master's; give a slave another one, such as brokerId=1")
    if not settings.is_slave and broker_id != 0:
        raise ConfigError(f"brokerId = {broker_id} is a slave's: set brokerRole=SLAVE, or brokerId=0")
    if role is BrokerRole.SYNC_MASTER and settings.ha_port == 0:
        raise ConfigError("a SYNC_MASTER needs slaves, and haListenPort=off lets none come")
    if settings.ha_bind is not None:
        check_not_public(settings.ha_bind, settings.insecure or settings.checks_access)
    if settings.failover and _secret(settings) == "":
        raise ConfigError(
            "a member with enableControllerMode=true may be master or slave, and with access control or "
            "tls.server.mode=enforcing none may follow without a secret: set haSecret, the same at all members"
        )


def ha_door(settings: BrokerSettings, port: int) -> Listener | None:
    """Return the bound port for slaves; None if it accepts none. Raises: ConfigError, a required port is taken."""
    port_setting = settings.ha_port
    if settings.is_slave or port_setting == 0:
        return None
    listener = port_for_slaves(settings, min(port + PORTS_ABOVE, _MAX_PORT) if settings.port else 0)
    try:
        listener.bind()
    except ConfigError as error:
        if port_setting is not None or settings.role is BrokerRole.SYNC_MASTER:
            raise
        log.warning("slaves cannot follow this master (%s; haListenPort=off does without)", error)
        return None
    return listener


def port_for_slaves(settings: BrokerSettings, beside: int = 0) -> Listener:
    """Return the port for slaves, not bound yet; `beside` is the port without a setting."""
    return Listener(settings.ha_bind or settings.bind_address, settings.ha_port or beside, "haListenPort")


def ha_master_rules(settings: BrokerSettings, epoch: int | None = None) -> HaMasterRules:
    return HaMasterRules(
        settings.role is BrokerRole.SYNC_MASTER,
        settings.slave_timeout_ms / 1000,
        settings.nearest_slave_bytes,
        ShippingRules(
            settings.ha_batch_bytes,
            settings.ha_heartbeat_ms / 1000,
            settings.ha_silence_ms / 1000,
            _secret(settings),
            epoch,
        ),
    )


def _secret(settings: BrokerSettings) -> str | None:
    """Return the secret of slaves: None if they need none, "" if they need one that is not set."""
    is_guarded = settings.checks_access or settings.tls_mode is TlsMode.ENFORCING
    return settings.ha_secret or ("" if is_guarded else None)


def slave_of(host: str, member: int | None, slave_addresses: Mapping[int, str]) -> tuple[int, str] | None:
    """Return the number and address of the slave at a host, or of the `member` that said so; None if that is open."""
    if member is not None and member in slave_addresses:
        return member, slave_addresses[member]
    matches = [
        (number, address)
        for number, address in slave_addresses.items()
        if address.rpartition(":")[0].strip("[]") == host
    ]
    return matches[0] if len(matches) == 1 else None
