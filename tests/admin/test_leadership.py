"""Orders to a group: at brokers that are none, and which member has most. At a real group: tests/broker/failover."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sparrowmq import Admin
from sparrowmq.admin import brokers, catalogue
from sparrowmq.admin.brokers import _member_with_most, _MemberLog
from sparrowmq.admin.servers import BrokerPlace
from sparrowmq.errors import (
    BrokerUnreachable,
    ConfigError,
    ConnectionClosed,
    NoBroker,
    NotElected,
    RemoteError,
)
from sparrowmq.loop.clock import SystemClock
from tests.broker.replication.pairs import pair


async def test_brokers_with_fixed_roles_refuse_and_unknown_ones_are_told(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        async with Admin(both.namesrv) as admin:
            ((name, place),) = [(each.name, each) for each in await admin.brokers()]
            with pytest.raises(RemoteError, match="enableControllerMode is not set"):
                await admin.hand_over(name)
            with pytest.raises(BrokerUnreachable, match="no broker that answers has this brokerId"):
                await admin.elect(name, 2)
            with pytest.raises(BrokerUnreachable, match="no broker of this name has an elected master"):
                await admin.elect(name)
            with pytest.raises(NoBroker, match="there is no broker 'other'"):
                await admin.elect("other", 1)
        assert place.master is not None


def test_of_the_logs_of_the_last_epoch_the_longest_has_most() -> None:
    stale, short, long = _MemberLog(5, 900, 1, "a"), _MemberLog(6, 300, 2, "b"), _MemberLog(6, 301, 3, "c")
    assert _member_with_most("g", {1: stale, 2: short, 3: long}, force=False) == 3
    assert _member_with_most("g", {2: short, 3: long}, force=True) == 3
    with pytest.raises(ConfigError, match="that of member 1 is of epoch 5 and ends at 900"):
        _member_with_most("g", {1: stale, 3: long}, force=True)


async def test_lost_members_do_not_prevent_the_choice_of_another_one_by_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = BrokerUnreachable("b:1", "refused")
    found = {"a:1": _MemberLog(5, 100, 1, "a:1"), "b:1": gone, "c:1": _MemberLog(5, 200, 3, "c:1")}
    asked: list[str] = []

    async def place_of(*_: object) -> BrokerPlace:
        return BrokerPlace("g", "C", dict(enumerate(found, 1)))

    async def log_at(_: object, address: str) -> object:
        return found[address]

    class Asked:
        network = SimpleNamespace(clock=SystemClock())

        async def ask(self, address: str, _: object) -> None:
            asked.append(address)

    async def figures(*_: object) -> dict[str, str]:
        return {"memberId": "3", "inSyncMembers": "3"}

    monkeypatch.setattr(brokers, "place_of", place_of)
    monkeypatch.setattr(brokers, "_member_log_at", log_at)
    monkeypatch.setattr(catalogue, "broker_figures", figures)
    with pytest.raises(NotElected, match=r"g has most is not known: cannot connect to b:1 .*Nothing has changed"):
        await brokers.elect(Asked(), "g", None, force=False)  # type: ignore[arg-type]
    with pytest.raises(NotElected, match=r"has the brokerId 2: cannot connect to b:1 .*Nothing has changed"):
        await brokers.elect(Asked(), "g", 2, force=True)  # type: ignore[arg-type]
    assert await brokers.elect(Asked(), "g", None, force=True) == 3  # type: ignore[arg-type]
    assert asked == ["c:1"]


async def test_an_order_is_done_once_the_member_leads_also_if_its_answer_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restarts = BrokerUnreachable("a:1", "refused")
    said: list[dict[str, str] | BrokerUnreachable] = []
    looks: list[str] = []

    async def place_of(*_: object) -> BrokerPlace:
        return BrokerPlace("g", "C", {1: "a:1"})

    async def figures(_: object, address: str) -> dict[str, str]:
        looks.append(address)
        now = said.pop(0) if len(said) > 1 else said[0]
        if isinstance(now, BrokerUnreachable):
            raise now
        return now

    class Servers:
        network = SimpleNamespace(clock=SystemClock())

        async def ask(self, *_: object) -> None:
            raise ConnectionClosed("a:1")

    async def elect(*answers: dict[str, str] | BrokerUnreachable) -> int:
        said[:] = [first, *answers]
        return await brokers.elect(Servers(), "g", 1, force=False)  # type: ignore[arg-type]

    monkeypatch.setattr(brokers, "place_of", place_of)
    monkeypatch.setattr(catalogue, "broker_figures", figures)
    monkeypatch.setattr(brokers, "LEADING_LIMIT_S", 0.5)
    first = {"memberId": "1", "replicationProblem": "etcd has lost its data"}
    assert await elect(first, restarts, {"memberId": "1", "inSyncMembers": "1"}) == 1
    assert len(looks) == 4
    with pytest.raises(NotElected, match=r"1 of g does not lead after 0.5 s: the disk is slow\. It begins once"):
        await elect(restarts, first | {"replicationProblem": "the disk is slow"})
    with pytest.raises(NotElected, match=r"does not lead after 0.5 s: cannot connect to a:1 .* If it has ended"):
        await elect(first, restarts)
