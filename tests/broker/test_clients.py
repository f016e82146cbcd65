import gc
import logging
from time import process_time
from typing import Any

import pytest

from sparrowmq.broker.clients import MAX_GROUPS, SILENCE_S, Clients
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat, ConsumerList
from sparrowmq.protocol.subscription import Subscription
from tests.broker.conftest import until

CHANGED = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


@pytest.fixture
def clients(clock):
    return Clients(clock)


def beat(clients, peer, client_id, *topics, group="g", version=1, notify=True):
    subscriptions = [Subscription.build(topic, version=version) for topic in topics]
    what = ConsumerBeat(group, subscription_data_set=subscriptions)
    return clients.consume(peer.far, client_id, what, notify=notify)


def ids(clients, group="g"):
    return sorted(member.client_id for member in clients.members(group))


async def test_the_first_heartbeat_makes_a_member_and_later_ones_change_nothing(clients, connect):
    peer = await connect()
    assert beat(clients, peer, "one", "Orders")
    assert not beat(clients, peer, "one", "Orders")
    assert ids(clients) == ["one"]
    assert clients.subscription("g", "Orders").expression == "*"
    assert at_once(clients.groups_subscribed_to("Orders")) == ["g"]


@pytest.mark.covers("S-CONS-13")
async def test_every_member_is_told_when_one_joins_the_newcomer_too(clients, connect):
    one, two = await connect(), await connect()
    beat(clients, one, "one", "Orders")
    beat(clients, two, "two", "Orders")
    await until(lambda: len(one.pushed) == 2 and len(two.pushed) == 1)
    assert one.pushed_codes() == [CHANGED, CHANGED]
    assert one.pushed[0].ext_fields() == {"consumerGroup": "g"}
    assert one.pushed[0].is_oneway


async def test_members_are_told_when_the_topics_change_but_not_when_only_the_expression_does(clients, connect):
    peer = await connect()
    beat(clients, peer, "one", "Orders")
    assert beat(clients, peer, "one", "Orders", "Payments", version=2)
    assert not beat(clients, peer, "one", "Orders", "Payments", version=3)
    assert beat(clients, peer, "one", "Payments", version=4)
    assert clients.subscription("g", "Orders") is None
    await until(lambda: len(peer.pushed) == 3)


async def test_a_group_may_not_want_to_be_told(clients, connect):
    peer = await connect()
    assert beat(clients, peer, "one", "Orders", notify=False)
    beat(clients, peer, "one", "Orders", group="h")
    await until(lambda: bool(peer.pushed))
    assert [command.ext_fields()["consumerGroup"] for command in peer.pushed] == ["h"]


async def test_an_older_subscription_does_not_replace_a_newer_one(clients, connect):
    one, two = await connect(), await connect()
    newer = Subscription.build("Orders", "paid", version=9)
    older = Subscription.build("Orders", "new", version=8)
    for peer, name, subscription in ((one, "one", newer), (two, "two", older)):
        what = ConsumerBeat("g", subscription_data_set=[subscription])
        clients.consume(peer.far, name, what)
    assert clients.subscription("g", "Orders") == newer


async def test_a_heartbeat_without_subscriptions_keeps_them(clients, connect):
    peer = await connect()
    beat(clients, peer, "one", "Orders")
    assert not clients.consume(peer.far, "one", ConsumerBeat("g"), keep_subscriptions=True)
    assert clients.subscription("g", "Orders") is not None


async def test_a_changed_fingerprint_asks_for_all_subscriptions(clients, connect):
    beat(clients, await connect(), "one", "Orders")
    clients.keep_fingerprint("g", 7)
    assert not clients.must_send_all("g", 7, without_subscriptions=True)
    assert clients.must_send_all("g", 8, without_subscriptions=True)


def test_a_broker_that_restarted_asks_for_all_subscriptions(clients):
    assert clients.must_send_all("g", 7, without_subscriptions=True)
    assert not clients.must_send_all("g", 7, without_subscriptions=False)


@pytest.mark.covers("S-START-11")
async def test_who_says_goodbye_is_gone_and_the_others_are_told(clients, connect):
    one, two = await connect(), await connect()
    beat(clients, one, "one", "Orders")
    beat(clients, two, "two", "Orders")
    clients.leave(two.far, "g", None)
    assert ids(clients) == ["one"]
    await until(lambda: len(one.pushed) == 3)
    clients.leave(one.far, "g", None)
    assert clients.group_view("g") is None


async def test_goodbyes_of_strangers_are_harmless(clients, connect):
    clients.leave((await connect()).far, "nobody", "none")


@pytest.mark.covers("S-CONS-14")
@pytest.mark.covers("S-CONS-13")
async def test_a_closed_connection_is_a_goodbye_to_all_groups(clients, connect):
    one, two = await connect(), await connect()
    beat(clients, one, "one", "Orders")
    beat(clients, two, "two", "Orders")
    clients.produce(two.far, "two", "p")
    await two.leave()
    assert ids(clients) == ["one"]
    assert clients.producers("p") == []
    await until(lambda: len(one.pushed) == 3)


@pytest.mark.covers("S-CONS-13", "S-CONS-14")
async def test_a_silent_client_is_parted_with_after_two_minutes(clients, connect, clock, caplog):
    silent, living = await connect(), await connect()
    beat(clients, silent, "silent", "Orders")
    await clock.advance(100)
    beat(clients, living, "living", "Orders")
    await clock.advance(SILENCE_S - 100)
    await clients.expire()
    assert ids(clients) == ["living", "silent"]
    await clock.advance(1)
    await clients.expire()
    assert ids(clients) == ["living"]
    await until(lambda: silent.near.closed)
    assert "sent no heartbeat for 120 s" in caplog.text


async def test_a_pause_of_the_broker_is_no_silence_of_its_clients(clients, connect, clock):
    beat(clients, await connect(), "paused", "Orders")
    await clock.pause(SILENCE_S + 5)
    await clients.expire()
    assert ids(clients) == ["paused"]


async def test_each_heartbeat_keeps_a_client_for_two_minutes_more(clients, connect, clock):
    peer = await connect()
    for _ in range(3):
        beat(clients, peer, "one", "Orders")
        await clock.advance(SILENCE_S - 1)
        await clients.expire()
        assert ids(clients) == ["one"]


async def test_producers_are_known_by_group_and_by_client_id(clients, connect):
    one, two = await connect(), await connect()
    clients.produce(one.far, "one", "p")
    clients.produce(one.far, "one", "p")
    clients.produce(two.far, "two", "p")
    assert [member.client_id for member in clients.producers("p")] == ["one", "two"]
    assert [group for group, _ in clients.producer_groups()] == ["p"]
    assert clients.producer_by_id("two") is two.far
    assert clients.producer_by_id("three") is None
    clients.leave(two.far, None, "p")
    assert [member.client_id for member in clients.producers("p")] == ["one"]


async def test_producers_may_come_while_their_groups_are_read(clients, connect):
    peer = await connect()
    clients.produce(peer.far, "one", "p")
    groups = clients.producer_groups()
    assert next(groups)[0] == "p"
    clients.produce(peer.far, "one", "q")
    assert not list(groups)


async def test_a_member_is_found_by_its_id_on_its_latest_connection(clients, connect, clock):
    old, new = await connect(), await connect()
    beat(clients, old, "one", "Orders")
    await clock.advance(1)
    beat(clients, new, "one", "Orders")
    assert clients.member("g", "one").peer is new.far
    assert clients.member("g", "two") is None


async def test_no_other_account_takes_the_id_of_a_member_over(clients, connect):
    old, new = await connect(), await connect()
    old.far.principal, new.far.principal = Account("owner"), Account("thief")
    beat(clients, old, "one", "Orders")
    beat(clients, new, "one", "Orders")
    assert clients.member("g", "one").peer is old.far
    await old.leave()
    assert clients.member("g", "one").peer is new.far


async def test_two_programs_with_one_client_id_are_named_in_the_log_once(clients, connect, clock, caplog):
    old, new = await connect(), await connect()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            beat(clients, old, "10.0.0.1@1", "Orders")
            await clock.advance(1)
            beat(clients, new, "10.0.0.1@1", "Orders")
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert old.far.address in told[0] and new.far.address in told[0] and "instanceName" in told[0]


async def test_a_client_that_reconnects_is_no_clash(clients, connect, clock, caplog):
    old, new = await connect(), await connect()
    with caplog.at_level(logging.WARNING):
        beat(clients, old, "10.0.0.1@1", "Orders")
        await clock.advance(1)
        for _ in range(3):
            beat(clients, new, "10.0.0.1@1", "Orders")
    assert caplog.records == []


async def test_members_that_want_other_topics_or_filters_are_named_in_the_log_once(clients, connect, caplog):
    one, two = await connect(), await connect()
    for _ in range(3):
        beat(clients, one, "one", "Orders", "%RETRY%g")
        beat(clients, two, "two", "Orders")
    beat(clients, one, "one", "Orders", "Payments", version=2)
    beat(clients, two, "two", "Orders", "Payments", version=2)
    beat(clients, one, "one", "Orders", "Payments", version=2)
    assert not caplog.messages, "the members changed one after the other"
    for _ in range(3):
        beat(clients, one, "one", "Orders", version=3)
        beat(clients, two, "two", "Orders", "Payments", version=2)
    told = [each for each in caplog.messages if "two wants" in each and two.far.address in each]
    assert len(caplog.messages) == 2 and len(told) == 1
    assert "wants {'Orders': '*', 'Payments': '*'}, and others {'Orders': '*'}" in told[0]


async def test_members_that_pull_or_broadcast_may_want_other_topics(clients, connect, caplog):
    one, two = await connect(), await connect()
    for field, value in (("consume_type", "CONSUME_ACTIVELY"), ("message_model", "BROADCASTING")):
        for peer, topic in ((one, "Orders"), (two, "Payments")) * 3:
            what = ConsumerBeat("g", subscription_data_set=[Subscription.build(topic)])
            setattr(what, field, value)
            clients.consume(peer.far, topic, what)
    assert not caplog.messages


async def test_another_client_id_on_the_same_connection_replaces_the_first(clients, connect):
    peer = await connect()
    beat(clients, peer, "one", "Orders")
    assert beat(clients, peer, "two", "Orders")
    assert ids(clients) == ["two"]


async def test_a_client_id_cannot_write_lines_of_its_own_into_the_log(clients, connect, clock, caplog):
    caplog.set_level(logging.INFO)
    peer, other = await connect(), await connect()
    forged = "me\n2026-01-01 00:00:00 INFO all is well"
    for client_id in (forged, "x" * 1_000_000):
        for each in (peer, other, peer):
            clients.check_groups(each.far, client_id, ["g"], ["p"])
            beat(clients, each, client_id, "Orders")
            await clock.advance(1)
        clients.produce(peer.far, client_id, "p")
        clients.leave(peer.far, "g", "p")
        clients.leave(other.far, "g", None)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("me\\n2026" in line for line in lines) >= 5
    assert sum("is used in group" in line for line in lines) == 2
    assert not [line[:80] for line in lines if "\n" in line or len(line) > 600]


class Account:
    """The account of a request."""

    is_admin, colleagues = False, ("owner", "thief")

    def __init__(self, access_key):
        self.access_key = access_key


class Stranger:
    """A connection without a socket."""

    address, principal = "10.0.0.1:5", None
    language, version = "JAVA", 409

    def __init__(self):
        self.told = 0

    def tell(self, notice):
        self.told += 1

    def on_end(self, ended):
        """It ends when a test says so."""

    def close(self):
        """There is no socket."""


def stranger() -> Any:
    return Stranger()


def seconds_to_leave(clock, groups):
    """The time in which a client of so many groups joins and leaves; the best of three."""
    best = 1e9
    gc.collect()
    gc.disable()  # it looks at all that other tests have left
    for _ in range(3):
        clients, peer, begin = Clients(clock), stranger(), process_time()
        for number in range(groups):
            clients.produce(peer, "one", f"p{number}")
            clients.consume(peer, "one", ConsumerBeat(f"g{number}"))
        clients._on_connection_end(peer)
        best = min(best, process_time() - begin)
        assert not list(clients.producer_groups()) and not clients.consumer_groups()
    gc.enable()
    return best


def test_the_time_to_leave_grows_as_the_number_of_groups(clock):
    assert seconds_to_leave(clock, 16_000) < 24 * seconds_to_leave(clock, 2000)


def test_a_connection_is_in_a_limited_number_of_groups(clients):
    peer, producers = stranger(), [f"p{number}" for number in range(MAX_GROUPS - 1)]
    clients.check_groups(peer, "one", ["g"], producers)
    clients.consume(peer, "one", ConsumerBeat("g"))
    for name in producers:
        clients.produce(peer, "one", name)
    clients.check_groups(peer, "one", ["g"], producers)
    for consumed, produced in ((["h"], []), ([], ["another"])):
        with pytest.raises(RemoteError, match="would make it 501: use several clients"):
            clients.check_groups(peer, "one", consumed, produced)
    clients.leave(peer, None, "p0")
    clients.check_groups(peer, "one", ["h"], [])


def test_many_groups_of_one_client_are_one_line_of_the_log(clients, caplog):
    caplog.set_level(logging.INFO)
    peer, names = stranger(), [f"p{number}" for number in range(200)]
    clients.check_groups(peer, "one", names, names)
    for name in names:
        clients.produce(peer, "one", name)
        clients.consume(peer, "one", ConsumerBeat(name))
    clients._on_connection_end(peer)
    assert [record.getMessage() for record in caplog.records] == [
        "consumer one of 200 groups, such as p0, connected from 10.0.0.1:5",
        "producer one of 200 groups, such as p0, connected from 10.0.0.1:5",
        "producer one of 200 groups, such as p0, left",
        "consumer one of 200 groups, such as p0, left",
    ]


def test_a_client_that_joins_and_leaves_without_end_fills_no_log(clients, caplog):
    caplog.set_level(logging.INFO)
    peer = stranger()
    for _ in range(1000):
        clients.check_groups(peer, "one", ["g"], [])
        clients.consume(peer, "one", ConsumerBeat("g"))
        clients.leave(peer, "g", None)
    assert len(caplog.records) == 200


async def test_a_look_for_silent_clients_may_pause_after_each_of_them(clients, clock):
    for _ in range(3):
        clients.produce(stranger(), "one", "p")
    await clock.advance(SILENCE_S + 1)
    assert [len(clients.producers("p")) for _ in clients._close_silent()] == [2, 1, 0]


def test_the_list_of_members_is_encoded_once_for_all_who_ask(clients):
    one, two = stranger(), stranger()
    clients.consume(one, "one", ConsumerBeat("g"))
    group = clients.group_view("g")
    first = group.encoded_ids()
    assert first is group.encoded_ids() and ConsumerList.decode(first).consumer_id_list == ["one"]
    clients.consume(two, "a second", ConsumerBeat("g"))
    assert ConsumerList.decode(group.encoded_ids()).consumer_id_list == ["a second", "one"]
    clients.leave(one, "g", None)
    assert ConsumerList.decode(group.encoded_ids()).consumer_id_list == ["a second"]


async def test_two_thousand_joins_cost_few_notices():
    clients = Clients(SystemClock())
    peers = [stranger() for _ in range(2000)]
    for peer in peers:
        clients.consume(peer, f"client {id(peer)}", ConsumerBeat("g"))
    assert sum(peer.told for peer in peers) <= 100
    await clients.notices.send_round()
    assert all(1 <= peer.told <= 14 for peer in peers)
    told = [peer.told for peer in peers]
    await clients.notices.send_round()
    assert [peer.told for peer in peers] == told, "each change is told once"
