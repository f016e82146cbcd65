"""How our client finds a real cluster: by the name servers it is told, in any form, and by those that are left."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sparrowmq.client.client import connect
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.testing.clock import ManualClock
from sparrowmq.testing.cluster import Cluster
from tests.client.cluster.test_name_servers import web
from tests.client.conftest import until

__all__ = ["web"]  # a fixture

NOBODY = "127.0.0.1:1"


@pytest.mark.covers("S-CFG-10", "S-CFG-11")
@pytest.mark.covers("S-CFG-01")
@pytest.mark.parametrize("form", ["{dead};{name}", "{name};{dead}", "{name}"])
async def test_a_list_is_tried_until_one_answers(cluster: Cluster, form: str) -> None:
    port = cluster.namesrv.partition(":")[2]
    given = form.format(dead=NOBODY, name=f"localhost:{port}")
    for _ in range(3):  # each client begins at another one
        async with connect(given) as mq:
            assert (await mq.send("orders", b"x")).offset_msg_id
            async with mq.subscribe("orders", group="g", start="earliest") as consumer:
                assert [message.body for message in await consumer.take(1)] == [b"x"]


@pytest.mark.covers("S-CFG-08")
async def test_code_goes_before_the_environment(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    async with connect() as mq:
        await mq.send("orders", b"x")
    monkeypatch.setenv("NAMESRV_ADDR", NOBODY)
    async with connect(cluster.namesrv) as mq:
        await mq.send("orders", b"x")


@pytest.mark.covers("S-CFG-02")
async def test_brokers_know_each_client_by_its_own_address(cluster: Cluster) -> None:
    async with connect(cluster.namesrv) as one, connect(cluster.namesrv, client_id="10.1.2.3@mine") as two:
        await one.admin.create_topic("orders")
        async with one.subscribe("orders", group="g"), two.subscribe("orders", group="g"):
            members = (await one.admin.group("g")).members
        assert sorted(members) == sorted([one.client_id, "10.1.2.3@mine"])
        assert one.client_id.startswith("127.0.0.1@")


@pytest.mark.covers("S-START-04")
@pytest.mark.covers("S-CFG-09")
async def test_an_address_server_moves_a_running_client(tmp_path: Path, web, monkeypatch: pytest.MonkeyPatch) -> None:
    page, url = web
    clock = ManualClock()
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with Cluster(tmp_path / "old") as old, Cluster(tmp_path / "new") as new:
        page.content = old.namesrv.encode()
        async with connect(url, clock=clock) as mq:
            await mq.send("old", b"x")
            await new_topic(new, "new")
            page.content = new.namesrv.encode()
            await clock.advance(9)
            assert mq._network.name_servers.addresses == [old.namesrv]
            await clock.advance(1)
            await until(lambda: mq._network.name_servers.addresses == [new.namesrv])
            await mq.send("new", b"x")
        async with connect(old.namesrv) as other:
            assert "new" not in await other.admin.topics()


async def new_topic(cluster: Cluster, name: str) -> None:
    async with connect(cluster.namesrv) as mq:
        await mq.admin.create_topic(name)


@pytest.mark.covers("S-ROUTE-12")
async def test_name_servers_know_what_brokers_tell_each_of_them_and_keep_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(name_server(tmp_path, clock))
        second = name_server(tmp_path, clock)
        await second.__aenter__()
        addresses = (first.address, second.address)
        await stack.enter_async_context(Cluster(tmp_path, clock=clock, namesrv=addresses))
        for address in addresses:
            async with connect(address) as mq:
                await mq.send("orders", b"x")
                await until(lambda: first.routes.route("orders") and second.routes.route("orders"))
        port = int(second.address.partition(":")[2])
        await second.__aexit__(None, None, None)
        anew = await stack.enter_async_context(name_server(tmp_path, clock, port))
        assert anew.routes.route("orders") is None
        await clock.advance(31)
        await until(lambda: anew.routes.route("orders"))
        async with connect(anew.address) as mq:
            await mq.send("orders", b"x")


def name_server(folder: Path, clock: ManualClock, port: int = 0) -> Namesrv:
    return Namesrv(NamesrvSettings(port=port, kv_path=folder / "kv.json"), clock)
