from datetime import timedelta

import pytest

from sparrowmq.admin.catalogue import broker_figures
from sparrowmq.admin.groups import GroupLag, QueueLag
from sparrowmq.admin.topics import local_time
from sparrowmq.console.cluster_view import BrokerNow, behind_s
from sparrowmq.errors import BrokerUnreachable, ConfigError, NetworkError, NoGroup
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.testing import Cluster

NOW_MS = 1_700_000_000_000


async def test_brokers_tell_what_they_count_and_one_that_is_gone_why_it_does_not(two, look):
    await look.admin.create_topic("orders")
    await look.client.send("orders", b"x")
    brokers = await look.brokers()
    assert [(each.name, each.role, each.silence) for each in brokers] == [
        ("broker-0", "master", None),
        ("broker-1", "master", None),
    ]
    assert sum(each.received_today for each in brokers) == 1


async def test_no_page_waits_for_a_broker_that_did_not_answer_the_last_look(two, look):
    [_, second] = await look.poll_brokers()
    assert look.servers.silent == {}
    look.servers.silent[second.address] = BrokerUnreachable(second.address, "it hangs")
    asked = look.servers.calls
    brokers = await look.brokers()
    assert [each.silence is None for each in brokers] == [True, False]
    assert look.servers.calls - asked == 2, "the name server and the other broker"
    partial = look.partial_admin().counted
    answers = await partial.all(await partial.all_masters(), lambda _, address: broker_figures(partial, address))
    assert list(answers) == ["broker-0"] and list(partial.missing) == ["broker-1"]
    assert [each.silence for each in await look.poll_brokers()] == [None, None]
    assert look.servers.silent == {} and len(await look.brokers()) == 2


def test_figures_that_are_missing_or_strange_count_as_nothing():
    broker = BrokerNow("c", "b", 2, "a:1", {"putTps": "1.5 2 3", "x": "many"}, None)
    assert (broker.role, broker.per_second("putTps"), broker.per_second("getTps")) == ("slave 2", 1.5, 0.0)
    assert broker.per_second("x") == 0.0 and broker.number_of("x") == 0


async def test_topics_have_their_kind_and_their_settings_at_each_broker(look):
    await look.admin.create_topic("orders", queues=3)
    await look.admin.create_topic("%RETRY%billing")
    await look.admin.create_topic("%DLQ%billing")
    topics = await look.topics()
    assert {broker: each.read_queue_nums for broker, each in topics["orders"].items()} == {
        "broker-0": 3,
        "broker-1": 3,
    }
    kinds = {name: look.kind_of(name) for name in topics}
    assert kinds["orders"] == "topic" and kinds["%RETRY%billing"] == "retry" and kinds["%DLQ%billing"] == "dlq"
    assert [name for name, kind in kinds.items() if kind == "topic"] == ["orders"]
    assert kinds["broker-0"] == kinds["TBW102"] == "system"


async def test_topics_are_asked_anew_once_something_was_changed(look):
    assert "orders" not in await look.topics()
    await look.admin.create_topic("orders")
    assert "orders" not in await look.topics(), "kept for three seconds"
    look.forget()
    assert "orders" in await look.topics()


async def test_producers_are_told_once_however_many_brokers_they_send_to(look):
    await look.admin.create_topic("orders", queues=1)
    for _ in range(2):
        await look.client.send("orders", b"x")
    producers = await look.producers()
    (members,) = [each for group, each in producers.items() if group == "CLIENT_INNER_PRODUCER"]
    assert [each.client_id for each in members] == [look.client.client_id]


async def test_a_group_that_nobody_knows_has_an_error_in_its_place(look):
    await look.admin.create_group("billing")
    lags = await look.lags(["billing", "nobody"])
    assert isinstance(lags["billing"], GroupLag) and isinstance(lags["nobody"], NoGroup)


def test_the_lag_in_time_is_that_of_the_queue_that_is_furthest_behind():
    def queue(number, lag, age_s):
        stored = local_time(NOW_MS - age_s * 1000) if age_s is not None else None
        return QueueLag(MessageQueue("t", "b", number), 10, 10 - lag, stored)

    told = GroupLag("g", (queue(0, 0, 9000), queue(1, 2, 30), queue(2, 1, 60), queue(3, 5, None)), 0.0)
    assert behind_s(told, NOW_MS) == 60
    assert behind_s(GroupLag("g", (queue(0, 0, 30),), 0.0), NOW_MS) is None
    assert timedelta(seconds=behind_s(told, 0) or 0) == timedelta(0), "clocks that differ give no negative age"


async def test_a_dry_run_tells_where_each_queue_would_go_on_and_moves_nobody(look):
    await look.admin.create_topic("orders", queues=1)
    await look.admin.create_group("billing")
    for _ in range(4):
        await look.client.send("orders", b"x")
    await look.admin.reset("billing", "orders", "earliest")
    targets = await look.reset_targets("orders", "latest")
    assert sum(targets.values()) == 4
    assert (await look.admin.lag("billing", "orders")).lag == 4


async def test_other_name_servers_are_asked_once_each_of_them_answers(two, look, tmp_path):
    async with Cluster(tmp_path / "other", brokers=1) as other:
        with pytest.raises(NetworkError):
            await look.use_name_servers(f"{other.namesrv};127.0.0.1:1")
        with pytest.raises(ConfigError, match="name the name servers themselves"):
            await look.use_name_servers("http://127.0.0.1/rocketmq/nsaddr")
        assert look.name_servers == [two.namesrv] and len(await look.brokers()) == 2
        await look.use_name_servers(other.namesrv)
        assert look.name_servers == [other.namesrv] and len(await look.brokers()) == 1


def test_a_broker_counts_the_messages_of_today_and_yesterday():
    figures = {
        "msgPutTotalTodayNow": "1500",
        "msgPutTotalTodayMorning": "300",
        "msgPutTotalYesterdayMorning": "100",
        "msgGetTotalTodayNow": "9",
    }
    now = BrokerNow("c", "b", 0, "a:1", figures, None)
    assert (now.received_today, now.received_yesterday, now.delivered_today, now.delivered_yesterday) == (
        1200,
        200,
        9,
        0,
    )
