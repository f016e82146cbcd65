"""The broker itself, for tools and operators.

    26, 25, 28, 315, 907    its settings, changes to them, its runtime figures, its message traffic, its replication
    306, 316, 329           cleaning on demand: CLEAN_EXPIRED_CONSUMEQUEUE, CLEAN_UNUSED_TOPIC, DELETE_EXPIRED_COMMITLOG
    32003, 32004, 32006     HAND_OVER_LEAD, ELECT_MEMBER, and a restart. Not in RocketMQ

Source: AdminBrokerProcessor and DefaultMessageStore, Java 4.9.8 and 5.4.0.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.handlers.handler import Handler, system_error
from sparrowmq.broker.metrics.status import Status
from sparrowmq.broker.metrics.traffic import Traffic
from sparrowmq.core import process
from sparrowmq.errors import RemoteError
from sparrowmq.loop.slices import Steps, in_slices
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.names import OP_HALF_TOPIC, STATE_TOPIC
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.admin_headers import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteExpiredCommitLog,
    ElectMember,
    GetBrokerConfig,
    GetBrokerConfigReply,
    GetBrokerRuntime,
    GetDiagnosis,
    GetHaStatus,
    HandOverLead,
    HandOverLeadReply,
    RestartBroker,
    UpdateBrokerConfig,
    ViewBrokerStats,
)
from sparrowmq.protocol.requests.bodies import OWN_VERSION, BrokerStats, DataVersion, HaStatus, KVTable
from sparrowmq.remoting.diagnosis import diagnosis
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.peer import Peer
from sparrowmq.settings.live_settings import LiveSettings
from sparrowmq.store.retention import Cleaning
from sparrowmq.version import VERSION

if TYPE_CHECKING:
    from sparrowmq.broker.failover.term import Term

log = logging.getLogger(__name__)
_WITHOUT_CONFIG: Final = frozenset({OP_HALF_TOPIC, STATE_TOPIC})


class InspectHandler:
    def __init__(
        self,
        settings: LiveSettings[BrokerSettings],
        status: Status,
        traffic: Traffic,
        replication: Callable[[], HaStatus],
    ) -> None:
        self._settings = settings
        self._status = status
        self._traffic = traffic
        self._replication = replication

    @handles(GetBrokerConfig)
    def config(self, header: GetBrokerConfig, body: bytes, peer: Peer) -> Reply:
        body = settings_text.render({OWN_VERSION: VERSION} | self._settings.current.as_shown())
        version = DataVersion(timestamp=self._status.started_ms, counter=self._settings.count).encode().decode()
        return Reply(header=GetBrokerConfigReply(version), body=body)

    @handles(UpdateBrokerConfig)
    async def change(self, header: UpdateBrokerConfig, body: bytes, peer: Peer) -> None:
        """Change some settings. If one is invalid, the answer gives the reason and no setting changes."""
        await self._settings.change(settings_text.of_request(body), peer.address)

    @handles(GetBrokerRuntime)
    def runtime(self, header: GetBrokerRuntime, body: bytes, peer: Peer) -> Reply:
        return Reply(body=KVTable(self._status.table()))

    @handles(GetHaStatus)
    def replication(self, header: GetHaStatus, body: bytes, peer: Peer) -> Reply:
        return Reply(body=self._replication())

    @handles(GetDiagnosis)
    async def diagnosis(self, header: GetDiagnosis, body: bytes, peer: Peer) -> Reply:
        return Reply(body=KVTable(await diagnosis(self._settings.current)))

    @handles(RestartBroker)
    def restart(self, header: RestartBroker, body: bytes, peer: Peer) -> None:
        """End in order and begin again, if this is still the broker that the sender has seen."""
        if header.boot_timestamp != self._status.started_ms:
            raise system_error(
                f"not restarted: this broker started at {self._status.started_ms}, not at {header.boot_timestamp}"
            )
        process.RESTART.request()

    @handles(ViewBrokerStats)
    def traffic(self, header: ViewBrokerStats, body: bytes, peer: Peer) -> Reply:
        """Return one figure for the last minute, hour and day. Tools expect an error if the figure does not exist."""
        spans = self._traffic.of(header.stats_name, header.stats_key)
        if spans is None:
            raise system_error(f"The stats <{header.stats_name}> <{header.stats_key}> not exist")
        return Reply(body=BrokerStats(*spans))


class LeadershipHandler:
    """Take an operator's orders to the members of a group. A broker without failover refuses them."""

    def __init__(self, term: Term, figures: Figures) -> None:
        self._term = term
        if term.is_elected:
            problem = term.problem
            figures.gauge(
                "sparrowmq_member_problem",
                "1 if this member neither leads nor follows, and no other member leads",
                lambda: int(bool(problem())),
            )

    @handles(HandOverLead)
    async def hand_over(self, header: HandOverLead, body: bytes, peer: Peer) -> HandOverLeadReply:
        if self._term.hand_over is None:
            raise _no_term_error(self._term)
        return HandOverLeadReply(await self._term.hand_over(header.member))

    @handles(ElectMember)
    async def elect(self, header: ElectMember, body: bytes, peer: Peer) -> None:
        if self._term.elect is None:
            raise _no_term_error(self._term)
        if header.member != self._term.member:
            raise system_error(f"this is member {self._term.member}")
        await self._term.elect(header.force)


def _no_term_error(term: Term) -> RemoteError:
    problem = "this member is not the master" if term.is_elected else "enableControllerMode is not set"
    return system_error(problem)


class CleaningHandler(Handler):
    """Clean the store for an operator who needs the disk space now. The answer means that cleaning has begun.

    Unlike Java, a queue whose messages are all deleted keeps its offsets: its next message does not get offset 0 again.
    """

    @handles(CleanExpiredConsumeQueue)
    def queues(self, header: CleanExpiredConsumeQueue, body: bytes, peer: Peer) -> None:
        log.info("%s starts the cleaning of queues and index", peer.address)
        self._store.retention.request(Cleaning.QUEUES)

    @handles(DeleteExpiredCommitLog)
    def files(self, header: DeleteExpiredCommitLog, body: bytes, peer: Peer) -> None:
        log.info("%s starts the deletion of expired log files", peer.address)
        self._store.retention.request(Cleaning.FILES)

    @handles(CleanUnusedTopic)
    def topics(self, header: CleanUnusedTopic, body: bytes, peer: Peer) -> Awaitable[None] | None:
        return in_slices(self._clean_topics(peer))

    def _clean_topics(self, peer: Peer) -> Steps[None]:
        for topic in self._store.queues.topics():
            if topic not in _WITHOUT_CONFIG and self._topics.get(topic) is None:
                log.info("%s deletes the queues of topic %s, which does not exist", peer.address, topic)
                self._topics.delete(topic)
                yield from self._store.deletion.begin(topic)
            yield
