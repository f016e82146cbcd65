import asyncio
import contextlib
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.loop.slices import at_once
from sparrowmq.namesrv.handlers import read_registration
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.names import ORDER_TOPICS
from sparrowmq.protocol.requests import namesrv_headers as ask
from sparrowmq.protocol.requests.bodies import (
    DataVersion,
    KVTable,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicRoute,
)
from sparrowmq.protocol.requests.registration_bodies import RegisterBrokerBody, sum_in_steps
from sparrowmq.protocol.requests.settings_text import parse
from tests.interop.wire import Wire

ADDRESS = "127.0.0.1:10911"

# As Apache 4.9.7 and 5.4.0 write it.
BODY_4 = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":2,"timestamp":1700000000000},'
    b'"topicConfigTable":{"Orders":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"Orders","topicSysFlag":0,"writeQueueNums":4}}}}'
)
BODY_5 = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":2,"stateVersion":0,'
    b'"timestamp":1700000000000},"mappingDataVersion":{"counter":1,"stateVersion":0,"timestamp":1},'
    b'"topicConfigTable":{"Orders":{"attributes":{},"order":false,"perm":6,"readQueueNums":4,'
    b'"topicFilterType":"SINGLE_TAG","topicName":"Orders","topicSysFlag":0,"writeQueueNums":4}},'
    b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
)
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}],'
    b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,'
    b'"writeQueueNums":4}]}'
)


def registration(address=ADDRESS, name="broker-a", broker_id=0, **more):
    return ask.RegisterBroker(name, address, "DefaultCluster", "127.0.0.1:10912", broker_id, **more)


def body(*topics, version=1):
    table = TopicConfigTable(DataVersion(version), {name: TopicConfig(name, 4, 4) for name in topics})
    return RegisterBrokerBody(table)


PACKED = at_once(body("Orders", "Bills", "%RETRY%group").pack_in_steps())


async def code_of(call):
    with pytest.raises(RemoteError) as caught:
        await call
    return caught.value.code, caught.value.remark


@pytest.mark.parametrize(
    "sent", [BODY_4, BODY_5, at_once(body("Orders").pack_in_steps())], ids=["4.9.7", "5.4.0", "packed"]
)
async def test_a_registered_topic_has_a_route_without_blanks(session, sent):
    packed = not sent.startswith(b"{")
    await session.call(registration(compressed=packed, body_crc32=at_once(sum_in_steps(sent))), sent)
    answer = await session.call(ask.GetRoute("Orders"))
    assert answer.body == ROUTE


async def test_a_packed_body_that_says_it_is_plain_is_read(session):
    await session.call(registration(compressed=False), at_once(body("Orders").pack_in_steps()))
    assert (await session.call(ask.GetRoute("Orders"))).body == ROUTE


async def test_a_body_that_changed_on_its_way_is_refused(session):
    assert await code_of(session.call(registration(body_crc32=at_once(sum_in_steps(BODY_4)) ^ 1), BODY_4)) == (
        1,
        "crc32 not match",
    )
    assert (await code_of(session.call(ask.GetRoute("Orders"))))[0] == 17


@pytest.mark.parametrize(
    "broken",
    [
        b"{",
        b"not json",
        b"\x00" * 100,
        b'{"topicConfigSerializeWrapper":7}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"readQueueNums":"many"}}}}',
        zlib.compress(b"\x7f\xff\xff\xff"),
        zlib.compress(b"")[:-3],
        BODY_4[:-20],
        b"{" * 10_000,
        "{\ud800".encode("utf-8", "surrogatepass"),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused_and_the_server_goes_on(session, broken):
    code, remark = await code_of(session.call(registration(), broken))
    assert code == 1 and "internal error" not in remark
    assert (await session.call(ask.GetBrokerCluster())).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


async def test_a_large_registration_may_not_be_in_a_dialect_which_is_slow_to_read(session):
    topics = ",".join(f'"t{number}":{{"topicName":"t{number}"}}' for number in range(1000))
    standard = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{topics}}}}}}}'.encode()
    await session.call(registration(body_crc32=0), standard)
    code, remark = await code_of(session.call(registration(body_crc32=0), b"{0:1," + standard[1:]))
    assert code == 1 and "standard JSON" in remark


async def test_a_registration_of_thousands_of_topics_and_their_list_leave_time_for_others(session):
    sent, turns = body(*(f"topic-{number}" for number in range(20_000))).encode(), 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.create_task(others())
    await session.call(registration(body_crc32=at_once(sum_in_steps(sent))), sent, timeout_s=60)
    assert turns > 10  # to read and to add the topics takes 40 ms or more
    turns = 0
    answer = await session.call(ask.GetAllTopicListFromNameserver(), timeout_s=60)
    beside.cancel()
    assert turns > 5
    assert len(TopicList.decode(answer.body).topic_list) == 20_000
    assert (await session.call(ask.GetRoute("topic-19999"))).body == ROUTE
    query = ask.QueryDataVersion("broker-a", ADDRESS, "DefaultCluster", 0)
    assert not (await session.call(query, DataVersion(1).encode())).header.changed


@given(
    st.sampled_from([BODY_4, BODY_5, PACKED]),
    st.integers(0, 2000),
    st.binary(max_size=8),
    st.integers(0, 2000),
)
def test_whatever_happens_to_a_body_it_is_read_or_refused(whole, cut, inserted, skipped):
    with contextlib.suppress(SparrowError):
        at_once(read_registration(registration(), whole[:cut] + inserted + whole[cut + skipped :]))


@pytest.mark.parametrize("fields", [{}, {"brokerName": "b"}, {"brokerId": "many"}, {"brokerId": str(2**70)}])
@pytest.mark.parametrize("code", [100, 101, 103, 104, 105, 216, 224, 322])
async def test_fields_that_are_missing_or_wrong_are_an_error_and_the_connection_stays(namesrv, code, fields):
    def ask_both():
        with Wire(int(namesrv.address.rpartition(":")[2])) as wire:
            return wire.ask(code, fields), wire.ask(106)

    refused, other = await asyncio.to_thread(ask_both)
    assert refused.code == 1 and "internal error" not in refused.remark
    assert other.code == 0


@pytest.mark.parametrize(
    "header",
    [
        registration(name=""),
        registration(name='a","b'),
        registration(name="../broker"),
        registration(address="127.0.0.1"),
        registration(address='127.0.0.1:1","x'),
        registration(address="a:1;b:2"),
        registration(address=""),
    ],
)
async def test_who_gives_no_proper_name_or_address_is_no_broker(session, header):
    code, remark = await code_of(session.call(header, BODY_4))
    assert code == 1 and "this is no broker" in remark


async def test_an_unknown_topic_is_code_17_in_javas_words(session):
    code, remark = await code_of(session.call(ask.GetRoute("Nope")))
    assert code == 17 and remark.startswith("No topic route info in name server for the topic: Nope\n")


async def test_a_slave_is_told_where_its_master_is(session, connect):
    await session.call(registration(), BODY_4)
    slave = await connect()
    answer = await slave.call(registration("127.0.0.1:10921", broker_id=1), BODY_4)
    assert (answer.header.master_addr, answer.header.ha_server_addr) == (ADDRESS, "127.0.0.1:10912")


async def test_a_master_is_told_nothing(session):
    answer = await session.call(registration(), BODY_4)
    assert answer.header == ask.RegisterBrokerReply() and answer.body == b""


async def test_a_broker_asks_for_its_version_instead_of_registering_again(session):
    query = ask.QueryDataVersion("broker-a", ADDRESS, "DefaultCluster", 0)
    answer = await session.call(query, DataVersion(2, 1_700_000_000_000).encode())
    assert answer.header.changed and answer.body == b""
    await session.call(registration(), BODY_4)
    answer = await session.call(query, DataVersion(2, 1_700_000_000_000, 0).encode())
    assert not answer.header.changed
    answer = await session.call(query, DataVersion(3, 1_700_000_000_000).encode())
    assert answer.header.changed and DataVersion.decode(answer.body).counter == 2


async def test_an_unregistered_broker_is_gone(session):
    await session.call(registration(), BODY_4)
    await session.call(ask.UnregisterBroker("broker-a", ADDRESS, "DefaultCluster", 0))
    assert (await code_of(session.call(ask.GetRoute("Orders"))))[0] == 17


async def test_the_cluster_and_its_topics_are_listed(session):
    await session.call(registration(), body("Orders").encode())
    answer = await session.call(ask.GetBrokerCluster())
    assert answer.body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster"}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )
    for request in (ask.GetAllTopicListFromNameserver(), ask.GetTopicsByCluster("DefaultCluster")):
        assert (await session.call(request)).body == b'{"topicList":["Orders"]}'
    assert (await session.call(ask.GetTopicsByCluster("Nope"))).body == b'{"topicList":[]}'
    answer = await session.call(ask.GetSystemTopicListFromNs())
    assert json.loads(answer.body) == {"brokerAddr": ADDRESS, "topicList": ["DefaultCluster", "broker-a"]}


async def test_brokers_of_one_name_are_told_apart_as_apaches_brokers_ask(session):
    """The answers of Apache's name server 5.4.0, but for the quotes around ids, which JSON demands."""
    master = b'{"0":"127.0.0.1:10911"}'
    await session.call(registration(), body("Orders").encode())
    for cluster, name, brokers in (
        ("DefaultCluster", "broker-a", master),
        ("Other", "broker-a", master),
        ("DefaultCluster", "nope", b"{}"),
    ):
        assert (await session.call(ask.GetBrokerMembers(cluster, name))).body == (
            b'{"brokerMemberGroup":{"brokerAddrs":%b,"brokerName":"%b","cluster":"%b"}}'
            % (brokers, name.encode(), cluster.encode())
        )


async def test_draining_counts_the_topics_and_shows_them_read_only(session):
    await session.call(registration(), BODY_4)
    assert (await session.call(ask.WipeWritePermOfBroker("broker-a"))).header.wipe_topic_count == 1
    assert TopicRoute.decode((await session.call(ask.GetRoute("Orders"))).body).queue_datas[0].perm == 4
    assert (await session.call(ask.AddWritePermOfBroker("broker-a"))).header.add_topic_count == 1
    assert (await session.call(ask.GetRoute("Orders"))).body == ROUTE
    assert (await session.call(ask.WipeWritePermOfBroker("nobody"))).header.wipe_topic_count == 0


async def test_a_deleted_topic_has_no_route(session):
    await session.call(registration(), BODY_4)
    await session.call(ask.DeleteTopicInNamesrv("Orders", "OtherCluster"))
    await session.call(ask.GetRoute("Orders"))
    await session.call(ask.DeleteTopicInNamesrv("Orders"))
    assert (await code_of(session.call(ask.GetRoute("Orders"))))[0] == 17


async def test_values_are_kept_told_and_forgotten(session):
    await session.call(ask.PutKVConfig("N", "k", "v=1;w"))
    assert (await session.call(ask.GetKVConfig("N", "k"))).header.value == "v=1;w"
    assert (await session.call(ask.GetKVListByNamespace("N"))).body == b'{"table":{"k":"v=1;w"}}'
    await session.call(ask.DeleteKVConfig("N", "k"))
    await session.call(ask.DeleteKVConfig("N", "k"))
    missing = "No config item, Namespace: N Key: k"
    assert await code_of(session.call(ask.GetKVConfig("N", "k"))) == (22, missing)
    assert await code_of(session.call(ask.GetKVListByNamespace("N"))) == (22, "No config item, Namespace: N")


async def test_a_value_that_cannot_be_saved_is_an_error_and_not_there(session, settings):
    settings.kv_path.mkdir()
    (settings.kv_path / "in the way").touch()
    (settings.kv_path.with_name("kvConfig.json.bak")).mkdir()
    (settings.kv_path.with_name("kvConfig.json.bak") / "in the way").touch()
    code, remark = await code_of(session.call(ask.PutKVConfig("N", "k", "v")))
    assert code == 1 and "could not be saved in kvConfig.json" in remark and "kvConfigPath" in remark
    assert str(settings.kv_path.parent) not in remark
    assert (await code_of(session.call(ask.GetKVConfig("N", "k"))))[0] == 22


async def test_brokers_are_told_the_order_topics(session):
    await session.call(ask.PutKVConfig(ORDER_TOPICS, "Orders", "broker-a:4"))
    answer = await session.call(registration(), BODY_4)
    assert KVTable.decode(answer.body).table == {"Orders": "broker-a:4"}


class TestWithoutOrderMessages:
    @pytest.fixture
    def settings(self, tmp_path):
        return NamesrvSettings(port=0, kv_path=tmp_path / "kvConfig.json", order_messages=False)

    async def test_routes_leave_the_order_out(self, session):
        await session.call(registration(), BODY_4)
        await session.call(ask.PutKVConfig(ORDER_TOPICS, "Orders", "broker-a:4"))
        assert (await session.call(ask.GetRoute("Orders"))).body == ROUTE


async def test_routes_tell_the_order_topics_fixed_queues(session):
    await session.call(registration(), body("Orders", "Bills").encode())
    await session.call(ask.PutKVConfig(ORDER_TOPICS, "Orders", "broker-a:4;broker-b:4"))
    route = TopicRoute.decode((await session.call(ask.GetRoute("Orders"))).body)
    assert route.order_topic_conf == "broker-a:4;broker-b:4"
    assert TopicRoute.decode((await session.call(ask.GetRoute("Bills"))).body).order_topic_conf is None


async def test_the_settings_are_told_as_properties(session, settings):
    answer = await session.call(ask.GetNamesrvConfig())
    assert parse(answer.body) == settings.as_properties()
    assert parse(answer.body)["bindAddress"] == "127.0.0.1"


async def test_order_topics_are_told_or_not_without_a_restart(session):
    await session.call(registration(), body("Orders").encode())
    await session.call(ask.PutKVConfig(ORDER_TOPICS, "Orders", "broker-a:4"))

    async def told():
        return TopicRoute.decode((await session.call(ask.GetRoute("Orders"))).body).order_topic_conf

    assert await told() == "broker-a:4"
    await session.call(ask.UpdateNamesrvConfig(), b"orderMessageEnable=false\n")
    assert await told() is None
    with pytest.raises(RemoteError, match="listenPort cannot change while the server runs"):
        await session.call(ask.UpdateNamesrvConfig(), b"listenPort=1\norderMessageEnable=true\n")
    assert await told() is None
