"""Orders to a group: only a member takes them, and only what it is in a position to do."""

from __future__ import annotations

import pytest

from sparrowmq.broker.failover.term import NO_FAILOVER, Term
from sparrowmq.broker.handlers.admin_handler import LeadershipHandler
from sparrowmq.errors import RemoteError
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.requests.admin_headers import ElectMember, HandOverLead


async def test_a_broker_without_failover_and_a_slave_refuse_orders(connect) -> None:
    peer = (await connect()).session
    alone = LeadershipHandler(NO_FAILOVER, Figures())
    with pytest.raises(RemoteError, match="enableControllerMode is not set"):
        await alone.hand_over(HandOverLead(), b"", peer)
    with pytest.raises(RemoteError, match="enableControllerMode is not set"):
        await alone.elect(ElectMember(1), b"", peer)
    with pytest.raises(RemoteError, match="not the master"):
        await LeadershipHandler(Term(2, 1), Figures()).hand_over(HandOverLead(), b"", peer)


async def test_an_order_reaches_the_member_that_it_names(connect) -> None:
    peer, ordered = (await connect()).session, list[object]()

    async def elect(force: bool) -> None:
        ordered.append(force)

    async def hand_over(member: int) -> int:
        ordered.append(member)
        return member

    handler = LeadershipHandler(Term(2, 1, elect=elect, hand_over=hand_over), Figures())
    with pytest.raises(RemoteError, match="this is member 2"):
        await handler.elect(ElectMember(1), b"", peer)
    await handler.elect(ElectMember(2, force=True), b"", peer)
    assert (await handler.hand_over(HandOverLead(3), b"", peer)).member == 3
    assert ordered == [True, 3]


def test_a_problem_of_the_member_is_a_figure() -> None:
    figures, problems = Figures(), [""]
    LeadershipHandler(Term(2, 1, problem=lambda: problems[0]), figures)
    assert figures.value("sparrowmq_member_problem") == 0
    problems[0] = "there is no master"
    assert figures.value("sparrowmq_member_problem") == 1
