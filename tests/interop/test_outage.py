"""Foreign clients while our servers come and go: what was acknowledged is kept, and what was going on goes on."""

from __future__ import annotations

import pytest

from tests.interop.conftest import start_client
from tests.interop.servers import OURS, OurBroker, OurNamesrv, Target

pytestmark = pytest.mark.slow


@pytest.fixture
def namesrv():
    with OurNamesrv() as namesrv:
        yield namesrv


@pytest.mark.nightly  # clients try again after 10 to 30 s
@pytest.mark.covers("S-START-09", "S-CONS-05")
@pytest.mark.parametrize(("name", "end"), [("cpp", "kill"), ("java-4.9.8", "stop"), ("java-5.4.0", "kill")])
def test_clients_survive_a_restart_of_the_broker(namesrv, tmp_path, name, end):
    broker = OurBroker(namesrv.address, tmp_path / "store")
    target = Target(OURS, namesrv.address, broker.address)
    with broker, start_client(name, target) as client:
        target.create_topic("T")
        with client.consume("g", "T") as consumer:
            client.send("T", "before", how="ordered", shard=0)
            consumer.wait_for(1)
            getattr(broker, end)()
            with OurBroker(namesrv.address, tmp_path / "store", port=broker.port):
                consumer.wait_until(lambda: sent(client, "T", "after"), "nothing can be sent", limit_s=60)
                consumer.wait_for_bodies(["after"], limit_s=60)
    assert consumer.bodies()[0] == "before"


def sent(client, topic, body):
    try:
        return client.send(topic, body, how="ordered", shard=0)
    except AssertionError:  # refused: no broker yet, or the connection broke under it
        return False
