"""Troubles, of brokers as they would be found; tests/console/test_outage.py kills real ones."""

import pytest

from sparrowmq.console.cluster_view import BrokerNow, ClusterView
from sparrowmq.console.troubles import Troubles
from sparrowmq.errors import AccessDenied, BrokerUnreachable, NameServerUnreachable
from sparrowmq.protocol.requests.bodies import CONDITION, ReportedCondition
from sparrowmq.testing import ManualClock

HOUR_S = 3600.0


def broker(name="a", number=0, address=None, figures=None, silence=None):
    return BrokerNow("c", name, number, address or f"{name}:{number}", figures or {}, silence)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def troubles(clock):
    return Troubles(ClusterView("127.0.0.1:1", clock=clock), clock)


def names(troubles):
    return [(each.name, each.broker, each.is_critical) for each in troubles.current()]


async def test_nothing_is_wrong_with_brokers_that_answer(troubles):
    await troubles.update([broker("a"), broker("a", 1), broker("b")])
    assert troubles.current() == () and troubles.lost_brokers() == ()


async def test_a_condition_has_what_the_broker_says(troubles):
    told = ReportedCondition(severity="critical", what="it failed", since_ms=5, remedy="restart it")
    mild = ReportedCondition(severity="warning", what="it is drained", since_ms=1, remedy="undrain it")
    figures = {
        CONDITION + "store_failed": told.encode().decode(),
        CONDITION + "drained": mild.encode().decode(),
    }
    await troubles.update([broker("a", figures=figures)])
    assert names(troubles) == [("store_failed", "a", True), ("drained", "a", False)]
    first = troubles.current()[0]
    assert (first.text, first.remedy, first.since_ms, first.is_older) == ("it failed", "restart it", 5, False)


async def test_an_effect_names_its_cause_and_comes_after_it_also_on_the_pages_that_suffer(troubles):
    no_slave = ReportedCondition(severity="critical", what="no slave follows", since_ms=1, remedy="start it")
    full = ReportedCondition(severity="warning", what="no room", since_ms=9, remedy="free some")
    drained = ReportedCondition(severity="warning", what="it is drained", since_ms=2, remedy="undrain it")
    master = broker("a", figures={CONDITION + "no_slave": no_slave.encode().decode()})
    slave = broker("a", 1, figures={CONDITION + "disk_full": full.encode().decode()})
    other = broker("b", figures={CONDITION + "drained": drained.encode().decode()})
    await troubles.update([master, slave, other])
    assert [each.name for each in troubles.current()] == ["disk_full", "no_slave", "drained"], "it is urgent"
    assert [each.cause for each in troubles.current()] == ["", "broker a (slave 1) at a:1: disk_full", ""]
    assert [each.is_urgent for each in troubles.current()] == [True, True, False]
    assert troubles.left_out_queues("t") == {}, "a slave with a full disk hides no message"
    assert [each.name for each in troubles._with_causes([troubles.current()[1]])] == ["disk_full", "no_slave"]


async def test_a_master_that_does_not_answer_is_critical_and_a_slave_is_not(troubles, clock):
    await troubles.update([broker("a"), broker("a", 1)])
    await clock.advance(HOUR_S)
    begun_ms = clock.now_ms()
    away = BrokerUnreachable("a", "no answer")
    for _ in range(3):
        await troubles.update([broker("a", silence=away), broker("a", 1, silence=away)])
        await clock.advance(5)
    assert names(troubles) == [("no_answer", "a", True), ("no_answer", "a", False)]
    assert [(each.since_ms, each.is_older) for each in troubles.current()] == [(begun_ms, False)] * 2


async def test_what_the_console_found_at_its_start_is_older(troubles):
    await troubles.update([broker("a", silence=BrokerUnreachable("a", "no answer"))])
    assert troubles.current()[0].is_older


async def test_a_refusal_is_a_warning(troubles):
    await troubles.update([broker("a", silence=AccessDenied("no"))])
    assert names(troubles) == [("refused", "a", False)]


async def test_a_dead_master_with_a_slave_is_one_trouble_and_counts_as_lost(troubles, clock):
    await troubles.update([broker("a"), broker("a", 1)])
    await clock.advance(5)
    await troubles.update([broker("a", 1)])
    assert names(troubles) == [("no_master", "a", True)]
    assert [(each.address, each.role) for each in troubles.lost_brokers()] == [("a:0", "master")]


@pytest.mark.parametrize(
    ("figures", "words"), [({"memberId": "2"}, "its members elect one"), ({}, "make a slave the master")]
)
async def test_members_that_elect_their_master_need_no_operator(troubles, figures, words):
    await troubles.update([broker("a", 1), broker("a", 2, figures=figures)])
    (found,) = troubles.current()
    assert found.name == "no_master" and words in found.remedy


async def test_a_broker_that_is_not_registered_any_more_is_missing_until_it_comes_back(troubles, clock):
    await troubles.update([broker("a"), broker("b")])
    for _ in range(3):
        await clock.advance(HOUR_S)
        await troubles.update([broker("a")])
    assert names(troubles) == [("missing", "b", True)]
    await clock.advance(5)
    await troubles.update([broker("a"), broker("b", address="b:9")])
    assert troubles.current() == (), "it may come back at another address"


async def test_a_lost_slave_is_a_warning_and_a_failover_leaves_no_false_alarm(troubles, clock):
    await troubles.update([broker("a", 0, "x"), broker("a", 2, "y")])
    await clock.advance(5)
    await troubles.update([broker("a", 0, "y")])
    assert names(troubles) == [("missing", "a", False)]
    assert [each.address for each in troubles.lost_brokers()] == ["x"]
    await clock.advance(5)
    await troubles.update([broker("a", 0, "y"), broker("a", 1, "x")])
    assert troubles.current() == ()


async def test_a_removed_broker_is_forgotten_by_a_click_or_after_a_week(troubles, clock):
    for forget in (True, False):
        await troubles.update([broker("a"), broker("b")])
        await clock.advance(5)
        await troubles.update([broker("a")])
        assert names(troubles) == [("missing", "b", True)]
        if forget:
            troubles.forget("b")
            assert troubles.current() == () and troubles.lost_brokers() == ()
        else:
            await clock.advance(8 * 24 * HOUR_S)
        await troubles.update([broker("a")])
        assert troubles.current() == ()
        await clock.advance(5)


async def test_all_name_servers_away_is_a_trouble(clock):
    async with ClusterView("127.0.0.1:1", clock=clock) as look:
        troubles = Troubles(look, clock)
        with pytest.raises(NameServerUnreachable):
            await troubles.poll()
    assert names(troubles) == [("no_name_server", "", True)]
    assert troubles.of_topics(["any"]) == list(troubles.current()) == troubles.of_broker("any")


async def test_topics_queues_and_groups_that_suffer_are_named(two):
    clock = ManualClock()
    async with ClusterView(two.namesrv) as look:
        await look.admin.create_topic("orders", queues=3)
        await look.admin.create_topic("payments", queues=1)
        await look.admin.create_group("billing")
        await look.client.send("orders", b"x")
        await look.admin.reset("billing", "orders", "earliest")
        look.forget()
        troubles = Troubles(look, clock)
        found = await troubles.poll()
        assert troubles.current() == ()
        await clock.advance(5)
        await troubles.update([each for each in found if each.name == "broker-0"])
        lost = troubles.current()[0]
        assert (lost.name, lost.queues, lost.topics) == ("missing", 4, ("orders", "payments"))
        assert lost.groups == ("billing",)
        assert troubles.left_out_queues("orders") == {"broker-1": 3} and troubles.left_out_queues("absent") == {}
        assert troubles.left_out_queues("absent", ["broker-1"]) == {"broker-1": 0}
        assert troubles.of_topics(["payments"]) == [lost] and troubles.of_topics(["absent"]) == []
        assert troubles.of_broker("broker-1") == [lost] and troubles.of_broker("broker-0") == []
