import sparrowmq
from sparrowmq.client.client import connect
from tests.client.conftest import until


class Noting(sparrowmq.Hooks):
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def connected(self, server):
        self.seen.append(("connected", str(server)))

    def disconnected(self, server):
        self.seen.append(("disconnected", str(server)))

    def reconnected(self, server):
        self.seen.append(("reconnected", str(server)))


class Failing(sparrowmq.Hooks):
    def connected(self, server):
        raise LookupError("no such gauge")


async def test_hooks_see_name_servers_and_brokers_come_and_go(cluster, caplog):
    noting = Noting()
    namesrv = f"name server {cluster.namesrv}"
    async with connect(cluster.namesrv, hooks=[Failing(), noting]) as mq:
        assert noting.seen == []
        await mq.send("orders", b"x")
        assert noting.seen == [("connected", namesrv), ("connected", "broker broker-0")]
        for session in list(cluster.brokers[0]._server.sessions):
            session.abort()
        await until(lambda: noting.seen[2:] == [("disconnected", "broker broker-0")])
        await mq.send("orders", b"x")
        assert noting.seen[3:] == [("reconnected", "broker broker-0")]
    assert len(noting.seen) == 4, "leaving is no loss"
    assert caplog.text.count("failed for") == 2
