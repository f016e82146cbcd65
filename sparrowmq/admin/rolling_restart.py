"""Restarts the brokers of a cluster one after the other, so that no send fails.

    a master   drained ── quiet ── restarted ── serves, is followed by its slaves ── undrained ── shown to producers
    a slave                        restarted ── serves, has what the master had
                                   (if sends wait for it, its master is drained before)
    a member of a group            restarted ── serves, has what the master had ── all members are in sync

Quiet means that producers have had the time to ask for routes (they do so every 30 s), and that no message comes. Sends
with keys to an ordered topic keep coming, so the wait ends in any case. A client sends again what the stop interrupts.
Offsets, locks, delayed messages, open transactions and staged batches are on disk, so nothing else is waited for.

Each step begins only when all brokers are well, and ends when they are well again. So never are two brokers away at one
time. If a broker does not come back, the restart stops there, and that broker stays drained.

The plan takes one name of brokers after the other: its slaves, then its master. An elected master is not drained: as it
stops, it lets another member lead. A plan is made of what the brokers say now. So a second plan with the same `since`
continues a restart that was interrupted, and nothing is kept elsewhere.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sparrowmq.admin import brokers
from sparrowmq.admin.catalogue import broker_figures, broker_settings, restart_broker, topic_route
from sparrowmq.admin.findings import reported_conditions
from sparrowmq.admin.servers import Servers
from sparrowmq.client.cluster.routes import MASTER, REFRESH_S
from sparrowmq.errors import ChangeFailed, NotBack, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.requests.bodies import OWN_VERSION

POLL_PERIOD_S = 0.5
DRAINED_CONDITION = "drained"  # the condition of a broker that operators have closed to producers
_MASTER_RISK: Final = "wait while it restarts, and fail if that takes longer than their time limit"
_SLAVE_RISK: Final = "say SLAVE_NOT_AVAILABLE while it restarts"


@dataclass(frozen=True, slots=True)
class BrokerNow:
    """One broker as it is now.

    Attributes:
        began_ms: when its process began; None if it does not answer.
        role_ms: when it began as master or slave. A member of a group does so with each new master.
        version: of SparrowMQ; None for Apache's.
        log_end: the end of its log.
        received: messages that it has stored since it began; those of producers alone while it is drained.
        member: its number in a group that elects the master; 0 in no such group.
        in_sync: the members that can be the next master, as the master of a group says.
        waits_for_slave: whether its sends wait for a slave.
        problems: why it does not do all of its work; empty if it does, or is only drained.
    """

    broker: str
    broker_id: int
    address: str
    began_ms: int | None = None
    role_ms: int = 0
    version: str | None = None
    log_end: int = 0
    received: int = 0
    is_drained: bool = False
    member: int = 0
    in_sync: frozenset[int] = frozenset()
    waits_for_slave: bool = False
    problems: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[str, int]:
        return self.broker, self.broker_id

    @property
    def is_member(self) -> bool:
        """Whether its group elects the master."""
        return self.member > 0

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER

    def __str__(self) -> str:
        return f"{self.broker} ({'master' if self.is_master else f'slave {self.broker_id}'}, {self.address})"


@dataclass(frozen=True, slots=True)
class Step:
    """The restart of one broker.

    Attributes:
        drains: whether producers are sent to other brokers before.
        undrains: whether producers may use it again after; that of a slave is the master of its name.
        was_restarted: the broker restarted before, and is only opened to producers again.
    """

    target: BrokerNow
    drains: bool = False
    undrains: bool = False
    was_restarted: bool = False

    @property
    def description(self) -> str:
        of_master = "" if self.target.is_master else " its master"
        parts = (
            f"drain{of_master}" if self.drains else "",
            "" if self.was_restarted else "restart",
            f"undrain{of_master}" if self.undrains else "",
        )
        return ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """The steps in their order, and what speaks against them.

    Brokers of `done` need no restart any more. `problems` say that the cluster is degraded, and `risks` name sends that
    may fail though the cluster is well.
    """

    steps: tuple[Step, ...]
    done: tuple[BrokerNow, ...] = ()
    problems: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()


def plan_of(
    brokers: Sequence[BrokerNow], topics: Mapping[str, Collection[str]], *, since_ms: int, version: str | None = None
) -> RestartPlan:
    """Return the plan for some brokers. `topics` are those to which clients send, by each master that takes messages.
    Brokers that have begun since `since_ms`, or run `version`, are done; None is to go by the time alone.
    """
    steps, done, problems, risks = list[Step](), list[BrokerNow](), list[str](), list[str]()
    masters = {broker.broker: broker for broker in brokers if broker.is_master}
    for broker in sorted(brokers, key=lambda broker: (broker.broker, broker.is_master, broker.broker_id)):
        problems += [f"{broker}: {problem}" for problem in broker.problems]
        master = masters.get(broker.broker)
        stops_sends = master is not None and not master.is_member and (broker.is_master or master.waits_for_slave)
        topics_only_here = _topics_only_at(broker.broker, topics) if stops_sends else []
        has_version = version is not None and broker.version == version
        if broker.began_ms is None or not (broker.began_ms >= since_ms or has_version):
            steps.append(Step(broker, drains=stops_sends and not topics_only_here))
            if topics_only_here:
                risk = _MASTER_RISK if broker.is_master else _SLAVE_RISK
                risks.append(f"{broker}: no other broker has {', '.join(topics_only_here)}; sends to these {risk}")
        elif broker.is_drained and broker.is_master:
            steps.append(Step(broker, undrains=True, was_restarted=True))
        else:
            done.append(broker)
    problems += [f"{name}: no broker is the master" for name in sorted({b.broker for b in brokers} - masters.keys())]
    problems += out_of_sync(brokers)
    return RestartPlan(_drain_once(steps), tuple(done), tuple(problems), tuple(risks))


def out_of_sync(brokers: Sequence[BrokerNow]) -> list[str]:
    """Return the members that are not in sync, in words: the restart of another one may leave a master alone."""
    in_sync = {broker.broker: broker.in_sync for broker in brokers if broker.in_sync}
    return [
        f"{broker.broker}: member {broker.member} is not in sync"
        for broker in brokers
        if broker.is_member and broker.member not in in_sync.get(broker.broker, ())
    ]


def _drain_once(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Let a master be drained from the first of the steps that need it to the last step of its name."""
    new_steps = list(steps)
    for name in {step.target.broker for step in steps if step.drains}:
        positions = [position for position, step in enumerate(steps) if step.target.broker == name]
        first_position = next(position for position in positions if steps[position].drains)
        for position in positions:
            new_steps[position] = replace(
                new_steps[position], drains=position == first_position, undrains=position == positions[-1]
            )
    return tuple(new_steps)


def _topics_only_at(broker: str, topics: Mapping[str, Collection[str]]) -> list[str]:
    elsewhere = {topic for name, names in topics.items() if name != broker for topic in names}
    return sorted(set(topics.get(broker, ())) - elsewhere)


@dataclass(frozen=True, slots=True)
class StepTimeouts:
    """The time limits of a step, in seconds.

    Attributes:
        settle_s: for producers to find other brokers.
        quiet_s: without any message before a broker restarts.
        noise_s: to wait for that beyond `settle_s`.
        back_s: for a broker to be back, and for all to be well.
    """

    settle_s: float = REFRESH_S + 1
    quiet_s: float = 2.0
    noise_s: float = 30.0
    back_s: float = 300.0


class RollingRestart:
    """One run over a cluster; None is the only one. `restart` restarts a broker, or has it restarted; by default the
    broker is asked to do so itself. `report` takes a line about each step, and what is waited for.
    """

    def __init__(
        self,
        servers: Servers,
        clock: Clock,
        cluster: str | None,
        timeouts: StepTimeouts,
        report: Callable[[str], object],
        restart: Callable[[BrokerNow], Awaitable[None]] | None = None,
    ) -> None:
        self._servers = servers
        self._clock = clock
        self._cluster = cluster
        self._timeouts = timeouts
        self._report = report
        self._restart = restart or (lambda broker: restart_broker(servers, broker.address, broker.role_ms))

    async def plan(self, since_ms: int, version: str | None = None) -> RestartPlan:
        """Return what is to be done now. Raises: NetworkError, ConfigError."""
        brokers_now = await self.poll()
        topics_and_failures = await self._servers.ask_masters(
            {
                broker.broker: broker.address
                for broker in brokers_now
                if broker.is_master and broker.began_ms is not None
            },
            self._topics,
        )
        return plan_of(brokers_now, topics_and_failures[0], since_ms=since_ms, version=version)

    async def run(self, plan: RestartPlan) -> list[str]:
        """Take all steps; returns the brokers. Raises: ChangeFailed, with those that are done."""
        restarted: list[str] = []
        known_brokers = [*plan.done, *(step.target for step in plan.steps)]
        for number, step in enumerate(plan.steps, 1):
            name = str(step.target)
            self._report(f"[{number}/{len(plan.steps)}] {name}: {step.description}")
            try:
                await self._run_step(step, known_brokers, plan)
            except SparrowError as error:
                raise ChangeFailed("restarting the cluster", restarted, {name: error}) from None
            restarted.append(name)
        return restarted

    async def poll(self) -> list[BrokerNow]:
        places = [
            (place.name, broker_id, address)
            for place in await self._servers.brokers(self._cluster)
            for broker_id, address in sorted(place.addresses.items())
        ]
        return list(await asyncio.gather(*(self._poll_broker(*place) for place in places)))

    async def _poll_broker(self, broker: str, broker_id: int, address: str) -> BrokerNow:
        try:
            figures = await broker_figures(self._servers, address)
            settings = await broker_settings(self._servers, address)
        except SparrowError as error:
            return BrokerNow(broker, broker_id, address, problems=(str(error),))
        return broker_now_of(broker, broker_id, address, figures, settings)

    async def _topics(self, _: str, address: str) -> list[str]:
        topics = await brokers.user_topics(self._servers, address)
        return [name for name, topic in topics.items() if topic.perm & Perm.WRITE]

    async def _run_step(self, step: Step, known_brokers: Sequence[BrokerNow], plan: RestartPlan) -> None:
        target = step.target
        await self._until_well(known_brokers, plan, target)
        if step.drains:
            await brokers.drain(self._servers, target.broker)
            masters = (broker for broker in known_brokers if broker.is_master and broker.broker == target.broker)
            await self._until_quiet(next(masters, target))
        if not step.was_restarted:
            brokers_before = await self.poll()
            ends = {broker.broker: broker.log_end for broker in brokers_before if broker.is_master}
            if target.is_member:  # it takes its role again with each new master that it follows
                answering = (broker for broker in brokers_before if broker.began_ms is not None)
                target = next((broker for broker in answering if broker.address == target.address), target)
            await self._restart(target)
            addresses = {broker.address for broker in brokers_before}
            await self._until_back(target, ends.get(target.broker, 0), addresses)
        await self._until_well(known_brokers, plan, target)
        if step.undrains:
            await brokers.undrain(self._servers, target.broker)
            await self._until_shown(target.broker)

    async def _until_quiet(self, target: BrokerNow) -> None:
        timeouts, began_at = self._timeouts, self._clock.monotonic()
        received, last_change = -1, began_at
        while True:
            now = self._clock.monotonic()
            broker_now = await self._poll_broker(target.broker, target.broker_id, target.address)
            if broker_now.received != received:
                received, last_change = broker_now.received, now
            waited_s = now - began_at
            is_quiet = now - last_change >= timeouts.quiet_s
            if waited_s >= timeouts.settle_s + (0.0 if is_quiet else timeouts.noise_s):
                return
            self._report(f"{target}: waiting until producers use other brokers ({waited_s:.0f} s)")
            await self._clock.sleep(POLL_PERIOD_S)

    async def _until_back(self, target: BrokerNow, log_end: int, addresses_before: Collection[str]) -> None:
        """Wait until another process serves, with the log up to where its master was. Raises: NotBack. Another member
        of a group may have the place of the target, at an address that was not there before.
        """

        async def problem() -> str:
            for broker in await self.poll():
                if target.is_member:
                    is_target = broker.address == target.address or (
                        broker.broker == target.broker and broker.address not in addresses_before
                    )
                else:
                    is_target = broker.place == target.place
                if is_target and broker.began_ms not in (None, target.began_ms):
                    if broker.log_end < log_end:
                        return f"it lacks {log_end - broker.log_end:,} bytes of its master"
                    return ""
            return "it has not begun again"

        await self._wait(target, problem)

    async def _until_well(self, known_brokers: Sequence[BrokerNow], plan: RestartPlan, target: BrokerNow) -> None:
        """Wait until every broker is there and well, apart from the problems of the plan. Raises: NotBack."""
        known_problems = {_stable_text(problem) for problem in plan.problems}

        async def problem() -> str:
            brokers_now = await self.poll()
            problems = missing_brokers(known_brokers, brokers_now)
            problems += [f"{broker}: {text}" for broker in brokers_now for text in broker.problems]
            problems = [text for text in problems if _stable_text(text) not in known_problems]
            problems += [text for text in out_of_sync(brokers_now) if text not in plan.problems]
            return "; ".join(problems)

        await self._wait(target, problem)

    async def _until_shown(self, broker: str) -> None:
        """Wait until each name server sends producers to the broker again. Raises: NotBack."""
        (target,) = [
            broker_now for broker_now in await self.poll() if broker_now.broker == broker and broker_now.is_master
        ]
        topics = await self._topics(broker, target.address)

        async def problem() -> str:
            if not topics:
                return ""
            rows, failures = await self._servers.ask_namesrvs(
                lambda address: topic_route(self._servers, topics[0], address)
            )
            hidden = [
                address
                for address, route in rows.items()
                if route is None
                or not any(row.broker_name == broker and row.perm & Perm.WRITE for row in route.queue_datas)
            ]
            return "" if not hidden and not failures else f"name server {[*hidden, *failures][0]} hides it"

        await self._wait(target, problem)

    async def _wait(self, target: BrokerNow, problem: Callable[[], Awaitable[str]]) -> None:
        """Wait until there is no problem. Raises: NotBack, the time is over."""
        deadline = self._clock.monotonic() + self._timeouts.back_s
        while True:
            try:
                problem_text = await problem()
            except SparrowError as error:
                problem_text = str(error)
            if not problem_text:
                return
            if self._clock.monotonic() >= deadline:
                raise NotBack(str(target), self._timeouts.back_s, problem_text)
            self._report(f"{target}: {problem_text}")
            await self._clock.sleep(POLL_PERIOD_S)


def missing_brokers(brokers_before: Sequence[BrokerNow], brokers_now: Sequence[BrokerNow]) -> list[str]:
    """Return the brokers that are away, in words. A new master changes the numbers of members, so they are counted."""
    present = {broker.place for broker in brokers_now}
    lost_places = sorted({broker.place for broker in brokers_before if not broker.is_member} - present)
    missing_counts = Counter(broker.broker for broker in brokers_before if broker.is_member) - Counter(
        broker.broker for broker in brokers_now
    )
    texts = [f"{name} {broker_id} is away" for name, broker_id in lost_places]
    return texts + [f"{name} lacks {count} of its members" for name, count in sorted(missing_counts.items())]


def received_in(figures: Mapping[str, str]) -> int:
    """Return how many messages came to a drained broker; Apache's brokers, and others, count all that were stored."""
    return int(figures.get("receivedFromProducers") or figures.get("putMessageTimesTotal") or 0)


def _in_sync(figures: Mapping[str, str]) -> frozenset[int]:
    """Return the members that a master has found in sync; a new one has those of the master before at first."""
    if figures.get("epochSettled") == "false":
        return frozenset()
    return frozenset(map(int, filter(None, figures.get("inSyncMembers", "").split(","))))


def _stable_text(problem: str) -> str:
    """Return what stays the same while a problem lasts: the broker and its condition, or a text without numbers.

    The text of a condition may change. That of open transactions says at first that no producer is online, and then
    that none ends them.
    """
    condition = re.fullmatch(r"(.*?\)): .* \((\w+)\)", problem, re.DOTALL)
    return re.sub(r"[0-9.,]+", "N", f"{condition[1]}: {condition[2]}" if condition else problem)


def broker_now_of(
    broker: str, broker_id: int, address: str, figures: Mapping[str, str], settings: Mapping[str, str]
) -> BrokerNow:
    conditions = {
        name: condition.what for name, condition in reported_conditions(figures).items() if name != DRAINED_CONDITION
    }
    problems = [f"{text} ({name})" for name, text in conditions.items()]
    if figures.get("replicationProblem"):
        problems.append(figures["replicationProblem"])
    return BrokerNow(
        broker,
        broker_id,
        address,
        began_ms=int(figures.get("memberBootTimestamp") or figures.get("bootTimestamp") or 0),
        role_ms=int(figures.get("bootTimestamp") or 0),
        version=settings.get(OWN_VERSION),
        log_end=int(figures.get("commitLogMaxOffset") or 0),
        received=received_in(figures),
        is_drained=settings.get(DRAINED_CONDITION) == "true",
        member=int(figures.get("memberId") or 0),
        in_sync=_in_sync(figures),
        waits_for_slave=settings.get("brokerRole") == "SYNC_MASTER",
        problems=tuple(problems),
    )
