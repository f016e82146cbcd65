"""Transactions of foreign clients, and stores with open transactions that change hands."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import sparrowmq
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message_id import parse_offset_id
from tests.broker.transacting import GROUP, Transacting
from tests.interop.apache import ApacheBroker, ApacheNamesrv
from tests.interop.servers import topic_fields
from tests.interop.wire import Wire

SEND, PULL, MAX_OFFSET, CREATE_TOPIC, END_TRANSACTION = 10, 11, 30, 17, 37
COMMIT, ROLLBACK = 8, 12
CONF = {
    "mapedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeCommitLog": 1 << 20,
    "messageIndexEnable": "false",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    "transactionOpBatchInterval": 20,  # 5.x gathers what it notes of ends, and loses at its stop what is not written
}
LIMIT_S = 60
REST_S = 1.0


@pytest.mark.cell("transaction")
def test_what_is_committed_is_consumed_and_what_is_rolled_back_is_not(target, client, topic, group):
    client.transact(group, topic, "rolled back", now="rollback")
    client.transact(group, topic, "committed", now="commit")
    with client.consume(f"{group}-readers", topic) as consumer:
        (received,) = consumer.wait_for(1)
    assert received["body"] == "committed"
    assert sum(target.end_of(topic, queue) for queue in range(2)) == 1


@pytest.mark.cell("check")
def test_a_broker_asks_how_a_transaction_ended(client, topic, group):
    client.transact(group, topic, "late", now="unknown", later="commit")
    with client.consume(f"{group}-readers", topic) as consumer:
        (received,) = consumer.wait_for(1)
    assert received["body"] == "late" and "late" in client.checks()


# Stores --------------------------------------------------------------------------------------------------------------


class Sender:
    """Half messages and ends over a bare socket."""

    def __init__(self, port: int) -> None:
        self._port = port
        with Wire(port) as wire:
            assert wire.ask(CREATE_TOPIC, topic_fields("Exchange")).code == 0

    def half(self, body: bytes) -> tuple[int, int]:
        """Queue offset and log offset of a half message that is stored now."""
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01{body.decode()}\x02"
        fields = {
            "producerGroup": GROUP, "topic": "Exchange", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": 1, "sysFlag": 4, "bornTimestamp": int(time.time() * 1000), "flag": 0, "properties": properties,
        }  # fmt: skip
        with Wire(self._port) as wire:
            reply = wire.ask(SEND, fields, body)
        assert reply.code == 0, reply.remark
        return int(reply.fields["queueOffset"]), parse_offset_id(reply.fields["msgId"]).physical_offset

    def end(self, half: tuple[int, int], how: int) -> None:
        fields = {
            "producerGroup": GROUP, "tranStateTableOffset": half[0], "commitLogOffset": half[1],
            "commitOrRollback": how, "fromTransactionCheck": "false", "msgId": "x",
        }  # fmt: skip
        with Wire(self._port) as wire:
            assert wire.ask(END_TRANSACTION, fields).code == 0

    def bodies(self, count: int) -> list[bytes]:
        """All bodies of the queue, once it has so many: Apache's queues lag behind its answers."""
        deadline, queue = time.monotonic() + LIMIT_S, {"topic": "Exchange", "queueId": 1}
        with Wire(self._port) as wire:
            while int(wire.ask(MAX_OFFSET, queue).fields["offset"]) < count:
                assert time.monotonic() < deadline, "the messages did not come"
                time.sleep(0.05)
            fields = {
                "consumerGroup": "readers", "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0,
                "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG", **queue,
            }  # fmt: skip
            while (reply := wire.ask(PULL, fields)).code != 0:
                assert time.monotonic() < deadline, reply.remark
                time.sleep(0.05)
        return [record.decode(each).body for each in record.walk(reply.body)]

    def wait_for_rest(self) -> None:
        """Return when the broker has noted no further end for a while: it does so after its answers."""
        deadline, ends = time.monotonic() + LIMIT_S, {"topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC", "queueId": 0}
        noted, since = "", time.monotonic()
        with Wire(self._port) as wire:
            while time.monotonic() - since < REST_S:
                assert time.monotonic() < deadline, "there is no end of ends"
                time.sleep(0.05)
                now = wire.ask(MAX_OFFSET, ends).fields["offset"]
                if now != noted:
                    noted, since = now, time.monotonic()


async def settle(namesrv: str, decided: dict[bytes, bool]) -> set[bytes]:
    """Be a producer of the group until a broker has asked about all of these; what it asked about."""
    asked: set[bytes] = set()
    async with sparrowmq.connect(namesrv) as mq:

        def check(message: sparrowmq.ReceivedMessage) -> bool:
            asked.add(message.body)
            return decided[message.body]

        producer = mq.producer(GROUP, check=check)
        await producer.send("Elsewhere", b"so that the broker knows us")
        deadline = time.monotonic() + LIMIT_S
        while asked < decided.keys():
            assert time.monotonic() < deadline, f"asked about {asked} only"
            await asyncio.sleep(0.05)
        await asyncio.sleep(0)
    return asked


def ours(store: Path) -> Transacting:
    return Transacting(store, SystemClock())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", ["4.9.7", pytest.param("5.4.0", marks=pytest.mark.nightly)])
@pytest.mark.slow
async def test_open_transactions_go_from_apache_to_ours_and_back(version, tmp_path):
    store = tmp_path / "store"
    with ApacheNamesrv(version) as namesrv:
        quiet = CONF | {"transactionTimeOut": 3_600_000}
        with ApacheBroker(version, namesrv.address, store, quiet) as broker:
            sender = Sender(broker.port)
            halves = {body: sender.half(body) for body in (b"a", b"b", b"c", b"d")}
            sender.end(halves[b"a"], COMMIT)
            sender.end(halves[b"b"], ROLLBACK)
            assert sender.bodies(1) == [b"a"]
            sender.wait_for_rest()
        it = ours(store)
        assert it.figure("s_open") == 2
        it.transactions.end(*halves[b"c"], GROUP, commit=True)
        it.begin(b"e", topic="Exchange", queue_id=1)
        it.begin(b"f", topic="Exchange", queue_id=1)
        it.end(it.begin(b"g", topic="Exchange", queue_id=1), commit=True)
        assert it.bodies("Exchange") == [b"a", b"c", b"g"]
        await it.close()
        with ApacheBroker(version, namesrv.address, store, CONF) as broker:
            decided = {b"d": True, b"e": True, b"f": False}
            assert await settle(namesrv.address, decided) == decided.keys()
            sender = Sender(broker.port)
            assert sorted(sender.bodies(5)) == [b"a", b"c", b"d", b"e", b"g"]
            sender.wait_for_rest()
            broker.kill()  # once in order is enough: it takes nine seconds
        it = ours(store)
        assert it.figure("s_open") == 0
        assert sorted(it.bodies("Exchange")) == [b"a", b"c", b"d", b"e", b"g"]
        await it.close()
