import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.client.client import connect
from sparrowmq.errors import BrokerUnreachable, ChangeFailed, ConfigError, NameServerUnreachable, NoBroker
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests.bodies import BrokerRoute, ClusterTable, QueueRoute, TopicRoute
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import peer as peer

BOTH = ["broker-0", "broker-1"]


async def test_brokers_are_told_with_their_places(two, admin):
    places = await admin.brokers()
    assert [place.name for place in places] == BOTH
    assert [place.master for place in places] == [broker.address for broker in two.brokers]
    assert await admin.clusters() == [places[0].cluster]


async def test_a_cluster_that_is_not_there_is_named_with_those_that_are(admin):
    with pytest.raises(NoBroker, match=r"no cluster 'nowhere'.*DefaultCluster"):
        await admin.brokers("nowhere")
    with pytest.raises(NoBroker, match="no cluster 'nowhere'"):
        await admin.create_topic("orders", cluster="nowhere")


async def test_without_brokers_a_change_says_what_to_start(tmp_path):
    async with Cluster(tmp_path, brokers=0) as empty, Admin(empty.namesrv) as admin:
        assert await admin.brokers() == [] and await admin.clusters() == []
        with pytest.raises(NoBroker, match="no broker is registered"):
            await admin.create_topic("orders")


async def test_of_several_clusters_one_has_to_be_named(tmp_path):
    async with (
        Cluster(tmp_path / "a", cluster="A") as first,
        Cluster(tmp_path / "b", cluster="B", name="broker-b", namesrv=(first.namesrv,)),
        Admin(first.namesrv) as admin,
    ):
        assert await admin.clusters() == ["A", "B"]
        with pytest.raises(ConfigError, match="clusters A, B; say which"):
            await admin.create_topic("orders")
        assert await admin.create_topic("orders", cluster="B") == ["broker-b"]
        assert await admin.topics("A") == [] and await admin.topics("B") == ["orders"]


@pytest.fixture(params=["127.0.0.1:1", None], ids=["gone", "without a master"])
async def half(two, peer, request):
    """An operator to whom a name server says that broker-1 is where nobody is, or has only a slave."""
    places = {"broker-0": {0: two.brokers[0].address}}
    places["broker-1"] = {0: request.param} if request.param else {1: "127.0.0.1:1"}
    rows = {name: BrokerRoute("DefaultCluster", name, place) for name, place in places.items()}
    table = ClusterTable(rows, {"DefaultCluster": list(rows)})
    peer.usual[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda _: Reply(body=table.encode())
    queues = [QueueRoute(name, read_queue_nums=1, write_queue_nums=1, perm=6) for name in rows]
    peer.routes["orders"] = TopicRoute(list(rows.values()), queues)
    async with Admin(peer.address) as admin:
        yield admin


async def test_a_change_that_reaches_one_of_two_masters_says_which(two, half):
    async with Admin(two.namesrv) as admin:
        await admin.create_topic("orders", queues=1)
        await admin.create_group("billing")
    for change, said in [
        (half.create_topic("t"), "setting topic t"),
        (half.change_topic("orders", queues=2), "changing topic orders"),
        (half.delete_topic("orders"), "deleting topic orders"),
        (half.create_group("g"), "setting group g"),
        (half.change_group("billing", max_retries=1), "changing group billing"),
        (half.delete_group("billing"), "deleting group billing"),
    ]:
        with pytest.raises(ChangeFailed, match=rf"{said} failed at broker-1: .*; it was done at broker-0") as caught:
            await change
        assert caught.value.done == ["broker-0"] and caught.value.what == said
        assert isinstance(caught.value.failures["broker-1"], BrokerUnreachable)


async def test_a_reset_that_reaches_one_of_two_masters_says_which(two, half):
    async with Admin(two.namesrv) as admin:
        await admin.create_topic("orders", queues=1)
        await admin.create_group("billing")
    with pytest.raises(ChangeFailed, match="resetting group billing in topic orders failed at broker-1"):
        await half.reset("billing", "orders", "latest")


async def test_a_group_that_may_be_where_nobody_answers_is_not_called_missing(half):
    with pytest.raises(BrokerUnreachable):
        await half.lag("missing", "orders")
    with pytest.raises(BrokerUnreachable):
        await half.delete_group("missing")


async def test_a_server_that_does_not_answer_is_waited_for_no_longer_than_allowed(peer):
    peer.usual[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda _: None
    async with Admin(peer.address, timeout_s=0.05) as admin:
        with pytest.raises(NameServerUnreachable, match=r"within 0\.05 s"):
            await admin.brokers()


async def test_a_name_server_gets_no_heartbeat_of_a_client_that_changes_its_routes(two, caplog):
    async with connect(two.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=1)
        await mq.send("orders", b"x")
        await mq.admin.drain("broker-0")
        await mq.admin.delete_topic("orders")
        await mq.admin.examine()
    assert not [record for record in caplog.records if "heartbeat" in record.getMessage()]
