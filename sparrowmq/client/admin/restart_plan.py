"""The plan of a rolling restart: which brokers, in which order, and why it should not begin now. Pure.

    one name of brokers after the other: its slaves, then its master
    a master is drained before, so that producers use the other brokers; if its sends wait for a slave, before its
    slaves restart. An elected master is not drained: as it stops, it lets another member lead

A plan is made of what the brokers say now: when each has begun, its version, whether it is drained. So a second plan
with the same `since` continues a restart that was interrupted, and nothing is kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sparrowmq.client.cluster.route import MASTER


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
        waits: whether its sends wait for a slave.
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
    waits: bool = False
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
        is_begun: the broker has restarted before, and is only opened to producers again.
    """

    target: BrokerNow
    drains: bool = False
    undrains: bool = False
    is_begun: bool = False

    @property
    def what(self) -> str:
        of = "" if self.target.is_master else " its master"
        parts = (
            f"drain{of}" if self.drains else "",
            "" if self.is_begun else "restart",
            f"undrain{of}" if self.undrains else "",
        )
        return ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in their order, and what speaks against them.

    Attributes:
        done: the brokers that need no restart any more.
        problems: the cluster is degraded; a restart makes it worse.
        risks: sends that may fail though the cluster is well.
    """

    steps: tuple[Step, ...]
    done: tuple[BrokerNow, ...] = ()
    problems: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()


def plan_of(
    brokers: Sequence[BrokerNow],
    topics: Mapping[str, Collection[str]],
    *,
    since_ms: int,
    version: str | None = None,
) -> Plan:
    """Return the plan for some brokers.

    Args:
        topics: for each master that takes messages, the topics to which clients send there.
        since_ms: brokers that have begun since then are done.
        version: brokers that run it are done, too; None to go by the time alone.
    """
    steps, done, problems, risks = list[Step](), list[BrokerNow](), list[str](), list[str]()
    masters = {each.broker: each for each in brokers if each.is_master}
    for each in sorted(brokers, key=lambda each: (each.broker, each.is_master, each.broker_id)):
        problems += [f"{each}: {problem}" for problem in each.problems]
        master = masters.get(each.broker)
        stops_sends = master is not None and not master.is_member and (each.is_master or master.waits)
        only_here = _only_here(each.broker, topics) if stops_sends else []
        if not _is_done(each, since_ms, version):
            steps.append(Step(each, drains=stops_sends and not only_here))
            risks += [_risk(each, only_here)] if only_here else []
        elif each.is_drained and each.is_master:
            steps.append(Step(each, undrains=True, is_begun=True))
        else:
            done.append(each)
    problems += [f"{name}: no broker is the master" for name in sorted({b.broker for b in brokers} - masters.keys())]
    problems += out_of_sync(brokers)
    return Plan(_drained_once(steps), tuple(done), tuple(problems), tuple(risks))


def out_of_sync(brokers: Sequence[BrokerNow]) -> list[str]:
    """Return which members of groups are not in sync with a master, in words.

    While one is not, the restart of another one may leave a master that is alone in sync.
    """
    in_sync = {each.broker: each.in_sync for each in brokers if each.in_sync}
    return [
        f"{each.broker}: member {each.member} is not in sync"
        for each in brokers
        if each.is_member and each.member not in in_sync.get(each.broker, ())
    ]


def _drained_once(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Let a master be drained from the first of the steps that need it to the last step of its name."""
    found = list(steps)
    for name in {step.target.broker for step in steps if step.drains}:
        places = [place for place, step in enumerate(steps) if step.target.broker == name]
        first = next(place for place in places if steps[place].drains)
        for place in places:
            found[place] = replace(found[place], drains=place == first, undrains=place == places[-1])
    return tuple(found)


def _risk(broker: BrokerNow, topics: Sequence[str]) -> str:
    if broker.is_master:
        effect = "wait while it restarts, and fail if that takes longer than their time limit"
    else:
        effect = "say SLAVE_NOT_AVAILABLE while it restarts"
    return f"{broker}: no other broker has {', '.join(topics)}; sends to these {effect}"


def _is_done(broker: BrokerNow, since_ms: int, version: str | None) -> bool:
    if broker.began_ms is None:
        return False
    return broker.began_ms >= since_ms or (version is not None and broker.version == version)


def _only_here(broker: str, topics: Mapping[str, Collection[str]]) -> list[str]:
    """Return the topics that no other broker takes messages for."""
    elsewhere = {topic for name, there in topics.items() if name != broker for topic in there}
    return sorted(set(topics.get(broker, ())) - elsewhere)
