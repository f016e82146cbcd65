"""Who leads, and how far slaves are behind: of whole brokers, and of figures as they and Java's tell them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq import Admin
from sparrowmq.admin.brokers import _standing
from sparrowmq.admin.servers import BrokerPlace
from sparrowmq.errors import BrokerUnreachable
from sparrowmq.version import VERSION
from tests.broker.replication.pairs import pair

PLACE = BrokerPlace("broker-a", "C", {0: "m:1", 1: "s:1"})


async def test_a_slave_that_has_all_is_not_behind_and_what_is_not_elected_has_no_epoch(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        await both.start("slave")
        await both.send(b"one")
        await both.same()
        async with Admin(both.namesrv) as admin:
            master, slave = await admin.standings()
    assert (master.role, slave.role, master.broker_id, slave.broker_id) == ("master", "slave", 0, 1)
    assert master.end == slave.end is not None and (slave.behind_bytes, slave.behind_s) == (0, 0.0)
    assert (master.behind_bytes, master.epoch, master.in_sync, master.member) == (None, None, None, None)
    assert (
        (master.version, master.protocol) == (VERSION, "V4_9_8") and slave.in_tps is not None and master.problem is None
    )


def figures(end: int, newest_ms: int | None = None, **more: str) -> dict[str, str]:
    found = {"commitLogMaxOffset": str(end), "putTps": "3.26 1.0 0.5", "getTransferedTps": "7 1 0", **more}
    return found if newest_ms is None else found | {"newestMessageTimeStamp": str(newest_ms)}


def test_a_slave_is_behind_in_bytes_and_in_time() -> None:
    slave = _standing(PLACE, 1, {"m:1": figures(1000, 90_000), "s:1": figures(400, 87_500)})
    assert (slave.behind_bytes, slave.behind_s, slave.in_tps, slave.out_tps) == (600, 2.5, 3.3, 7.0)


def test_of_javas_the_time_is_not_known() -> None:
    slave = _standing(PLACE, 1, {"m:1": figures(1000), "s:1": figures(400)})
    assert (slave.behind_bytes, slave.behind_s) == (600, None)


def test_an_elected_master_tells_its_epoch_and_who_is_in_sync() -> None:
    told = figures(5, 1, memberId="2", masterEpoch="7", inSyncMembers="1,2", logEpoch="6")
    master = _standing(PLACE, 0, {"m:1": told, "s:1": figures(5, 1)})
    assert (master.member, master.epoch, master.in_sync, master.log_epoch) == (2, 7, (1, 2), 6)
    assert master.inherited is None
    odd = _standing(PLACE, 0, {"m:1": told | {"inSyncMembers": f"1,²,{'9' * 5000},2"}, "s:1": figures(5, 1)})
    assert odd.in_sync == (1, 2)
    new = _standing(PLACE, 0, {"m:1": told | {"epochSettled": "false"}, "s:1": figures(5, 1)})
    assert (new.in_sync, new.inherited) == (None, (1, 2))  # the dead master may be one of them


def test_one_that_neither_leads_nor_follows_says_why_and_is_measured_all_the_same() -> None:
    slave = _standing(PLACE, 1, {"m:1": figures(1000), "s:1": figures(400, replicationProblem="not the store")})
    assert (slave.problem, slave.behind_bytes) == ("not the store", 600)


@pytest.mark.parametrize(("broker_id", "is_told"), [(0, True), (1, False)])
def test_one_that_does_not_answer_says_why_and_who_follows_it_is_not_measured(broker_id: int, is_told: bool) -> None:
    found = _standing(PLACE, broker_id, {"m:1": BrokerUnreachable("m:1", "refused"), "s:1": figures(400, 1)})
    assert (found.problem is not None) == is_told
    assert (found.behind_bytes, found.behind_s) == (None, None)
