"""A broker as a whole: what a restart keeps, what stops it from starting, what ends it."""

import asyncio
import errno
import socket
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.errors import ConfigError, RemoteError, StoreFailed, StoreLocked
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateTopic
from sparrowmq.protocol.requests.bodies import ClusterTable, TopicRoute
from sparrowmq.protocol.requests.headers import QueryConsumerOffset, UpdateConsumerOffset
from sparrowmq.protocol.requests.namesrv_headers import GetBrokerCluster, GetRoute, RegisterBroker
from sparrowmq.protocol.requests.registration_bodies import RegisterBrokerBody
from sparrowmq.protocol.wire.codec import encode_request
from sparrowmq.protocol.wire.connection import Connection
from sparrowmq.remoting.pool import Pool
from sparrowmq.store.store_settings import Flush
from sparrowmq.store.vfs import Disk, File
from sparrowmq.testing import Cluster
from tests.broker.live import live_broker, send_request
from tests.interop.apache import free_ports


@pytest.mark.covers("S-ROUTE-07", "S-STORE-07")
async def test_messages_topics_groups_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.session.call(UpdateAndCreateTopic("made", 2, 3, perm=6))
        for number in range(100):
            await live.send(b"%d" % number, topic="made", queue_id=number % 2)
        await live.session.call(UpdateConsumerOffset("group", "made", 1, 17))
    async with live_broker(tmp_path) as live:
        bodies = [message.body for message in await live.messages("made", 1, max_msg_bytes=1 << 20, max_msg_nums=99)]
        assert bodies == [b"%d" % number for number in range(1, 100, 2)]
        assert (await live.session.call(QueryConsumerOffset("group", "made", 1))).header.offset == 17
        with pytest.raises(RemoteError, match=r"queueId\[2\] is illegal"):
            await live.pull("made", 2)
        assert (await live.send(topic="made", queue_id=2)).queue_offset == 0


async def test_topics_that_were_not_saved_are_found_in_the_store(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(b"kept", topic="orders", queue_id=3)
    (tmp_path / "broker-0" / "config" / "topics.json").unlink()
    (tmp_path / "broker-0" / "config" / "topics.json.bak").unlink(missing_ok=True)
    async with live_broker(tmp_path) as live:
        assert [message.body for message in await live.messages("orders", 3)] == [b"kept"]


async def test_a_taken_port_is_told_before_the_store_is_touched(tmp_path: Path) -> None:
    async with live_broker(tmp_path / "one") as live:
        port = int(live.broker.address.rpartition(":")[2])
        settings = BrokerSettings(name="other", port=port, store_path=tmp_path / "two")
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            async with Broker(settings):
                pass
    assert not (tmp_path / "two").exists()


async def test_a_store_in_use_is_told(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        settings = BrokerSettings(name="other", port=0, store_path=live.broker.settings.store_path)
        with pytest.raises(StoreLocked, match="another storePathRootDir"):
            async with Broker(settings):
                pass
        assert (await live.send()).queue_offset == 0


async def test_a_public_address_needs_a_word_from_the_operator(tmp_path: Path) -> None:
    settings = BrokerSettings(name="open", ip="192.0.2.1", port=0, store_path=tmp_path)
    with pytest.raises(ConfigError, match="--insecure"):
        async with Broker(settings):
            pass


@pytest.mark.covers("S-STORE-08")
@pytest.mark.parametrize(
    ("flush", "fault", "properties"),
    [
        (Flush.SYNC, "write", {}),
        (Flush.SYNC, "write", {"WAIT": "false"}),
        (Flush.SYNC, "sync", {}),
        (Flush.ASYNC, "write", {}),
        (Flush.ASYNC, "write", {"WAIT": "false"}),
    ],
)
async def test_a_failed_disk_lets_the_broker_serve_and_acknowledge_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: Flush, fault: str, properties: dict[str, str]
) -> None:
    well = getattr(Disk, fault)

    def refuse(disk: Disk, file: File, *rest: object) -> None:
        if "commitlog" in file.path:
            raise OSError(errno.EROFS, "Read-only file system")
        well(disk, file, *rest)

    parts = batch.encode([batch.BatchPart(b"not safe", b""), batch.BatchPart(b"either", b"")])
    single, several = send_request(properties=properties), send_request(properties=properties, batch=True)
    requests = [encode_request(single, single.code, opaque, 4) + b"lost" for opaque in range(20)]
    requests.append(encode_request(several, several.code, 20, len(parts)) + parts)
    peer, has_served = socket.socket(), False
    with pytest.raises(StoreFailed, match="Read-only file system"):  # when it is stopped, and no sooner
        async with live_broker(tmp_path, flush=flush) as live:
            await live.send(b"safe", properties=properties)
            host, _, port = live.broker.address.partition(":")
            peer.connect((host, int(port)))
            monkeypatch.setattr(Disk, fault, refuse)
            peer.sendall(b"".join(requests))
            with peer:
                codes = await asyncio.to_thread(answered, peer, len(requests))
            assert codes == [14] * 21
            with pytest.raises(RemoteError, match="messages can be read, none is taken"):
                await live.send(b"later", properties=properties)
            assert (await live.messages())[0].body == b"safe"
            await live.session.call(UpdateConsumerOffset("readers", "orders", 0, 1))
            assert (await live.session.call(QueryConsumerOffset("readers", "orders", 0))).header.offset == 1
            has_served = True
    assert has_served
    monkeypatch.setattr(Disk, fault, well)
    async with live_broker(tmp_path, flush=flush) as live:
        assert (await live.messages())[0].body == b"safe"


def answered(peer: socket.socket, count: int) -> list[int]:
    """The codes of so many answers."""
    connection = Connection[None]()
    codes: list[int] = []
    peer.settimeout(10)
    while len(codes) < count:
        codes += [answer.code for answer in connection.receive(peer.recv(1 << 16))]
    return codes


async def test_on_a_full_disk_a_new_topic_is_in_the_log_and_its_file_is_saved_once_there_is_room(
    tmp_path: Path,
) -> None:
    async with live_broker(tmp_path) as live:
        config = live.broker.settings.config_path
        (config / "spare").unlink()  # others took the room that was kept back
        (config / "topics.json.tmp").symlink_to("/dev/full")  # until a failed attempt takes the link away
        await live.session.call(UpdateAndCreateTopic("made", 2, 3, perm=6))
        assert not (config / "topics.json").exists()
        assert (await live.send(topic="made", queue_id=2)).queue_id == 2
        with pytest.raises(RemoteError, match="illegal"):
            await live.pull("made", 2)
    async with live_broker(tmp_path) as live:
        with pytest.raises(RemoteError, match="illegal"):  # it has 2 queues to read, not 4 as one found in the store
            await live.pull("made", 2)


@pytest.mark.covers("S-PORT-02")
async def test_clients_are_told_the_address_that_was_set(tmp_path: Path) -> None:
    (ha_port,) = free_ports(1)
    set_: dict[str, Any] = {"ip": "192.0.2.1", "ha_ip": "192.0.2.2", "ha_port": ha_port, "bind": "127.0.0.1"}
    pool = Pool(SystemClock())
    async with Cluster(tmp_path, **set_) as cluster:
        namesrv, port = await pool.session(cluster.namesrv), cluster.brokers[0].address.rpartition(":")[2]
        route = TopicRoute.decode((await namesrv.call(GetRoute("TBW102"))).body)
        assert [broker.broker_addrs for broker in route.broker_datas] == [{0: f"192.0.2.1:{port}"}]
        slave = RegisterBroker("broker-0", "127.0.0.1:9", "DefaultCluster", "", 1)
        answer = await namesrv.call(slave, RegisterBrokerBody().encode())
        assert answer.header.ha_server_addr == f"192.0.2.2:{ha_port}"
        sent = await (await pool.session(f"127.0.0.1:{port}")).call(send_request(), b"x")
    pool.close()
    assert sent.header.msg_id.startswith(f"C0000201{int(port):08X}")


@pytest.mark.covers("S-ROUTE-10")
async def test_a_topic_is_created_on_one_broker_or_on_all_of_a_cluster(tmp_path: Path) -> None:
    pool = Pool(SystemClock())
    async with Cluster(tmp_path, brokers=3) as cluster:
        namesrv = await pool.session(cluster.namesrv)

        async def create(topic: str, *addresses: str) -> set[str]:
            """Create a topic as the admin tool does; returns where clients find it."""
            for address in addresses:
                await (await pool.session(address)).call(UpdateAndCreateTopic(topic, 2, 2, perm=6))
            route = TopicRoute.decode((await namesrv.call(GetRoute(topic))).body)
            return {queues.broker_name for queues in route.queue_datas}

        table = ClusterTable.decode((await namesrv.call(GetBrokerCluster())).body)
        members = table.cluster_addr_table["DefaultCluster"]
        masters = {name: table.broker_addr_table[name].broker_addrs[0] for name in members}
        assert await create("one", masters["broker-1"]) == {"broker-1"}
        assert await create("all", *masters.values()) == {"broker-0", "broker-1", "broker-2"}
    pool.close()
