import logging
from pathlib import Path

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.client_bodies import (
    ClientConfigCheck,
    ConsumerBeat,
    ConsumerList,
    Heartbeat,
    ProducerBeat,
)
from sparrowmq.protocol.requests.headers import (
    CheckClientConfig,
    GetConsumerListByGroup,
    HeartBeat,
    UnregisterClient,
)
from sparrowmq.protocol.subscription import Subscription
from tests.broker.conftest import until
from tests.broker.live import live_broker


async def ids(client, group="g"):
    return ConsumerList.decode((await client.call(GetConsumerListByGroup(group))).body).consumer_id_list


@pytest.mark.covers("S-RETRY-04", "S-START-03")
async def test_a_first_heartbeat_makes_group_and_retry_topic_and_waits_for_the_route(desk, client):
    await client.beat("one", "Orders")
    assert desk.groups.get("g") is not None
    assert desk.topics.get("%RETRY%g").write_queue_nums == 1
    assert desk.announcements == [desk.topics.version.counter]
    assert await ids(client) == ["one"]
    await client.beat("one", "Orders")
    assert len(desk.announcements) == 1, "later heartbeats wait for nothing"


async def test_every_answer_has_the_fields_of_newer_clients(client):
    first = await client.session.call(HeartBeat(), b'{"clientID":"one"}')
    assert (first.header.is_support_heart_beat_v2, first.header.is_sub_change) == (True, True)


async def test_a_shortened_heartbeat_is_enough_once_the_whole_one_was_here(desk, client):
    assert not (await client.beat("one", "Orders", heartbeat_fingerprint=5, without_sub=False)).is_sub_change
    assert not (await client.beat("one", heartbeat_fingerprint=5, without_sub=True)).is_sub_change
    assert desk.clients.subscription("g", "Orders") is not None
    assert (await client.beat("one", heartbeat_fingerprint=6, without_sub=True)).is_sub_change


async def test_a_shortened_heartbeat_to_a_broker_that_restarted_asks_for_the_whole_one(client):
    assert (await client.beat("one", heartbeat_fingerprint=5, without_sub=True)).is_sub_change


async def test_members_hear_of_each_other_before_the_answer_comes(connect):
    one, two = await connect(), await connect()
    await one.beat("one", "Orders")
    await two.beat("two", "Orders")
    assert [command.code for command in two.pushed] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    await until(lambda: len(one.pushed) == 2)
    assert await ids(one) == ["one", "two"]


async def test_unregistering_leaves_at_once_and_the_others_are_told(connect):
    one, two = await connect(), await connect()
    await one.beat("one", "Orders")
    await two.beat("two", "Orders")
    await two.call(UnregisterClient("two", "", "g"))  # C++ sends an empty name for no group
    assert await ids(one) == ["one"]
    await until(lambda: len(one.pushed) == 3)


async def test_a_group_without_members_is_an_error(client):
    error = await client.refusal(GetConsumerListByGroup("nobody"))
    assert error.code == ResponseCode.SYSTEM_ERROR
    assert error.remark == "no consumer for this group, nobody"


@pytest.mark.parametrize(
    "body",
    [
        # C++: ordinals, codeSet of zeros, a line feed at the end
        b"""{"clientID":"one","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"g","messageModel":1,
        "subscriptionDataSet":[{"classFilterMode":false,"codeSet":[0],"subString":"a","subVersion":"1","tagsSet":["a"],
        "topic":"Orders"}]}],"producerDataSet":[]}\n""",
        # JavaScript: names, hardly anything else
        b"""{"clientID":"one","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY",
        "messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet":[{"topic":"Orders","subString":"a"}]}]}""",
    ],
)
async def test_heartbeats_of_all_languages_are_understood(desk, client, body):
    await client.call(HeartBeat(), body)
    group = desk.clients.group_view("g")
    assert (group.consume_type, group.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert group.subscriptions["Orders"].codes == {97}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "JSON"),
        (b"[]", "Heartbeat"),
        (b"{}", "clientID"),
        (b'{"clientID":"one","consumerDataSet":[{"groupName":"../g"}]}', "illegal"),
        (b'{"clientID":"one","producerDataSet":[{"groupName":""}]}', "blank"),
        (b'{"clientID":"one","consumerDataSet":[{"groupName":"g","messageModel":9}]}', "is no index of"),
    ],
)
async def test_a_heartbeat_that_makes_no_sense_says_why(client, body, words):
    error = await client.refusal(HeartBeat(), body)
    assert error.code == ResponseCode.SYSTEM_ERROR
    assert words in error.remark


@pytest.mark.parametrize(
    "body",
    [
        b'{"clientID":"one","producerDataSet":[' + b",".join([b'{"groupName":"p%d"}'] * 3000) + b"]}",
        b'{"clientID":"one","consumerDataSet":[' + b",".join([b"{}"] * 3000) + b"]}",
        b'{"clientID":"' + b"x" * 600_000 + b'"}',
        b'{"clientID":"one","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"Orders","subString":"'
        + b"||".join(b"%d" % number for number in range(3000))
        + b'"}]}]}',
        b'{"clientID":"one","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"Orders","tagsSet":['
        + b",".join(b'"%d"' % number for number in range(40_000))
        + b"]}]}]}",
    ],
)
async def test_a_heartbeat_of_too_many_things_is_refused(desk, client, body):
    error = await client.refusal(HeartBeat(), body)
    assert "the heartbeat is too large" in error.remark and "use several clients" in error.remark
    assert desk.groups.get("g") is None


async def test_a_check_of_too_many_tags_is_refused(client):
    given = (
        ClientConfigCheck("one", "g", Subscription("Orders", "a")).encode().replace(b'"a"', b'"%b"' % (b"a||" * 3000))
    )
    error = await client.refusal(CheckClientConfig(), given)
    assert "the check is too large" in error.remark


async def test_a_refused_heartbeat_joins_no_group(desk, client):
    body = Heartbeat("one", [ProducerBeat(f"p{number}") for number in range(501)], [ConsumerBeat("g")])
    error = await client.refusal(HeartBeat(), body.encode())
    assert "a connection is in 500 consumer and producer groups at most" in error.remark
    assert list(desk.clients.producer_groups()) == desk.clients.consumer_groups() == []


async def test_the_same_client_id_on_two_connections_is_logged(desk, connect, caplog):
    one, two = await connect(), await connect()
    await one.beat("10.0.0.1@1", "Orders")
    await desk.clock.advance(1)
    await two.beat("10.0.0.1@1", "Orders")
    with caplog.at_level(logging.WARNING):
        await one.beat("10.0.0.1@1", "Orders")
    assert "client id 10.0.0.1@1 is used in group g from both" in caplog.text
    assert await ids(one) == ["10.0.0.1@1"]


async def test_tag_subscriptions_pass_the_check_and_sql_does_not(client):
    def check(kind):
        subscription = Subscription.build("Orders", "a", kind)
        return CheckClientConfig(), ClientConfigCheck("one", "g", subscription).encode()

    await client.call(*check("TAG"))
    await client.call(CheckClientConfig(), b"{}")
    error = await client.refusal(*check("SQL92"))
    assert error.remark == "The broker does not support consumer to filter message by SQL92"


async def test_where_sql_is_allowed_the_check_tells_what_is_wrong_with_it(tmp_path: Path) -> None:
    def check(expression: str) -> tuple[CheckClientConfig, bytes]:
        subscription = Subscription.build("Orders", expression, "SQL92")
        return CheckClientConfig(), ClientConfigCheck("one", "g", subscription).encode()

    async with live_broker(tmp_path, property_filter=True) as live:
        await live.session.call(*check("amount > 5"))
        with pytest.raises(RemoteError, match="line 1, column 10, before '> 5'") as caught:
            await live.session.call(*check("amount > > 5"))
    assert caught.value.code == 23
