"""The role of a broker in replication: a master ships its log to slaves, a slave takes that of its master.

without failover    the settings say who is master, and name servers say where it is
with failover       the term says both: name servers may know a new master too late

Other members may lack a part of a member's log, and one of them may lead next. So consumers may read (`HighWatermark`):

    no failover              all
    no master is known       nothing
    the master               nothing until its epoch is settled, then what all members in sync have (in_sync.py)
    its slave                up to the offset that the master says, once this has reached the end that the log had
                             when the slave began: any of those messages may be of an earlier master
    ... of an older master   all, once the log is proved to be the beginning of the master's
    ... without room         all, if the log was proved so at an earlier start: it follows no master
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.broker_state import BrokerState
from sparrowmq.broker.delayed.delay import DelayProgress
from sparrowmq.broker.failover.term import Term
from sparrowmq.broker.part import Part
from sparrowmq.broker.registration import Registration
from sparrowmq.broker.replication.ha_master import HaMaster, ha_master_rules
from sparrowmq.broker.replication.peer_repair import addresses_by_number, same_log_addresses
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.requests.bodies import HaStatus
from sparrowmq.remoting.listener import Listener
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.tls.contexts import ServerTls
from sparrowmq.store.message_store import MessageStore

if TYPE_CHECKING:  # a master does not load it
    from sparrowmq.broker.replication.ha_slave import HaSlave, HaSlaveRules


_MEMBERS_PAUSE_S: Final = 0.5  # before a member tries again to reach its master


@dataclass(frozen=True)
class BrokerContext:
    """The broker whose role it is. `slaves` is its port for slaves. `is_full`: its disk had no room at the start."""

    settings: BrokerSettings
    address: str
    store: MessageStore
    clock: Clock
    figures: Figures
    term: Term
    slaves: Listener | None
    tls: ServerTls
    client_tls: ssl.SSLContext | None
    is_full: bool


class ReplicationRole:
    def __init__(self, broker: BrokerContext) -> None:
        store = broker.store
        self.high_watermark = HighWatermark(store, broker.term, is_full=broker.is_full)
        self.status: Callable[[], HaStatus] = lambda: HaStatus(True, store.end)
        self._broker = broker
        self._slave: HaSlave | None = None
        self._master_address = ""  # a slave's master, as far as it is known

    @property
    def problem(self) -> str:
        slave = self._slave
        return self._broker.term.problem() or (slave.problem if slave is not None else "")

    def stop(self) -> None:
        if self._slave is not None:
            self._slave.stop()

    def lead(self, pool: Pool) -> list[Part]:
        context = self._broker
        if context.slaves is None:
            return []
        term = context.term
        rules = ha_master_rules(context.settings, term.epoch if term.is_elected else None)
        addresses = partial(addresses_by_number, context.settings, context.address, pool)
        store, clock, figures = context.store, context.clock, context.figures
        master = HaMaster(store, context.slaves, clock, rules, figures, term.in_sync, context.tls, addresses)
        self.status = master.status
        return [master.part()]

    def follow(self, state: BrokerState, delayed: DelayProgress, registration: Registration, pool: Pool) -> list[Part]:
        """Return the parts that take the log of the master, and its topics, groups and offsets."""
        from sparrowmq.broker.replication.ha_slave import HaSlave
        from sparrowmq.broker.replication.state_mirror import Mirror, SameSettings  # a master does not load them

        store, clock, term = self._broker.store, self._broker.clock, self._broker.term
        self._slave = slave = HaSlave(store, clock, self._slave_rules(), self._broker.figures)
        if self._broker.is_full:
            slave.stop()  # its reports would say that what its queues show is on disk
        mirror = Mirror(store, state, delayed, pool, clock, lambda: slave.trusts_master)
        slave.on_trust, slave.on_lost = mirror.wake, registration.topics_changed
        self.high_watermark.follow(slave)
        self.status = slave.status
        settings_check = SameSettings(self._broker.settings, slave, pool, clock)

        def follow_master(master: str, shipping: str) -> None:
            self._master_address = master
            settings_check.set_master(master)
            mirror.set_master(master)
            slave.set_master(shipping)

        def on_trust_of_member() -> None:
            term.on_joined()
            self.high_watermark.note_equal_logs()
            mirror.wake()

        if not term.is_elected:
            registration.on_master = follow_master
        else:
            slave.on_trust, slave.on_lost = on_trust_of_member, lambda: None
            if term.leader is not None:
                follow_master(term.leader.address, term.leader.shipping)
        return [slave.part(), mirror.part(), settings_check.part()]

    async def peers(self, pool: Pool) -> Sequence[str]:
        context = self._broker
        if context.term.is_elected:
            others = await context.term.peers()
        else:
            others = await same_log_addresses(context.settings, context.address, pool)
        return (self._master_address, *others) if self._master_address else others

    def _slave_rules(self) -> HaSlaveRules:
        from sparrowmq.broker.replication.ha_slave import ha_slave_rules
        from sparrowmq.protocol import replication

        rules, term = ha_slave_rules(self._broker.settings, self._broker.client_tls), self._broker.term
        if not term.is_elected:
            return rules

        introduction = replication.introduction(
            term.member, term.epoch, asks_visible_end=self.high_watermark.asks_master
        )
        return replace(rules, master=None, introduction=introduction, pause_s=_MEMBERS_PAUSE_S)


class HighWatermark:
    """Decides whether consumers may read, and how far. `asks_master`: a slave asks its master how far."""

    def __init__(self, store: MessageStore, term: Term, *, is_full: bool) -> None:
        self.on_change: Callable[[], object] = lambda: None
        self._store = store
        self._term = term
        self._log_end_at_start = store.end
        self.asks_master = term.leader is not None and term.leader.tells_shown and not is_full
        self._may_have_more = self.asks_master or term.may_have_more(store.end)
        if term.in_sync is not None:
            term.in_sync.on_settled = lambda: self.on_change()

    @property
    def is_hidden(self) -> bool:
        return self._term.hides_log or self._may_have_more

    def follow(self, slave: HaSlave) -> None:
        if self.asks_master:
            show = self._store.limit_visibility(lambda: slave.visible_end)

            def on_visible_end() -> None:
                show()
                if slave.visible_end >= self._log_end_at_start:
                    self._show_log()

            slave.on_visible_end = on_visible_end

    def note_equal_logs(self) -> None:
        if not self.asks_master:
            self._show_log()

    def _show_log(self) -> None:
        if self._may_have_more:
            self._may_have_more = False
            self.on_change()
