"""Master and slave across implementations: Apache's slave follows our master, and ours a master of Apache's.

Both are looked at by the bytes of their logs and by what a consumer gets from the slave.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.protocol.messages import record
from tests.interop.apache import ApacheBroker, ApacheNamesrv, free_ports
from tests.interop.servers import APACHE, OURS, SETTINGS, OurBroker, OurNamesrv
from tests.interop.wire import PULL, Reply, Wire, pull_fields

pytestmark = pytest.mark.slow

SEND, COMMIT, GROUP = 10, 15, "readers"
ALL_OFFSETS, ALL_GROUPS = 43, 201
OK, SLAVE_NOT_AVAILABLE, SERVICE_NOT_AVAILABLE = 0, 11, 14
SLAVE = {"brokerId": 1, "brokerRole": "SLAVE", "slaveReadEnable": "true"}
LOG_FILE_BYTES = 16 << 20
Broker = OurBroker | ApacheBroker


def ask(broker: Broker, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> Reply:
    with Wire(broker.port) as wire:
        return wire.ask(code, fields, body)


def send(broker: Broker, body: bytes, topic: str = "Orders", queue_id: int = 0) -> int:
    fields = {
        "producerGroup": "writers",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue_id,
        "sysFlag": 0,
        "bornTimestamp": int(time.time() * 1000),
        "flag": 0,
        "properties": "KEYS\x01k\x02TAGS\x01t\x02",
        "reconsumeTimes": 0,
        "unitMode": "false",
        "batch": "false",
    }
    return ask(broker, SEND, fields, body).code


def pull(broker: Broker, offset: int = 0, topic: str = "Orders") -> list[bytes]:
    reply = ask(broker, PULL, pull_fields(topic, consumerGroup=GROUP, queueOffset=offset))
    return [bytes(record.decode(each).body) for each in record.walk(memoryview(reply.body))]


def log_of(broker: Broker) -> bytes:
    files = sorted((broker.store / "commitlog").glob("0*"))
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


def until(condition: Callable[[], bool], limit_s: float = 40) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.05)


class Brokers:
    """A master and its slave at one name server, each of a kind, with ports of their own.

    Apache's slave takes topics, groups and offsets at its master's fast port, two below the other.
    """

    def __init__(self, of_master: str, of_slave: str, path: Path, namesrv: str, **both: Any) -> None:
        self._kinds = {"master": of_master, "slave": of_slave}
        self._path = path
        self._namesrv = namesrv
        self._both = both
        ports = free_ports(8)
        self._ports = {"master": ports[2], "slave": ports[6]}

    def make(self, who: str) -> Broker:
        port, store = self._ports[who], self._path / who
        sizes = {"mappedFileSizeCommitLog": LOG_FILE_BYTES}
        conf: dict[str, Any] = SETTINGS | sizes | {"haListenPort": port + 1} | self._both
        if who == "slave":
            conf |= SLAVE
        if self._kinds[who] == OURS:
            return OurBroker(self._namesrv, store, conf | {"fastListenPort": port - 2}, port)
        return ApacheBroker(self._kinds[who].removeprefix("apache-"), self._namesrv, store, conf, port)


@contextmanager
def pair(of_master: str, of_slave: str, path: Path, **both: Any) -> Iterator[tuple[Broker, Broker]]:
    """The slave comes when its master has messages already."""
    with OurNamesrv() as namesrv:
        brokers = Brokers(of_master, of_slave, path, namesrv.address, **both)
        with brokers.make("master") as master:
            for number in range(20):
                assert send(master, b"before %d" % number) in (OK, SLAVE_NOT_AVAILABLE)
            with brokers.make("slave") as slave:
                yield master, slave
                slave.kill()
            master.kill()


BOTH_WAYS = [(OURS, APACHE), (APACHE, OURS)]


@pytest.mark.parametrize(("of_master", "of_slave"), BOTH_WAYS)
def test_a_slave_follows_a_master_of_the_other_kind_byte_for_byte_and_serves_its_messages(
    tmp_path: Path, of_master: str, of_slave: str
) -> None:
    both = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 20_000}
    with pair(of_master, of_slave, tmp_path, **both) as (master, slave):
        pull(master)  # which makes the group
        committed = {"consumerGroup": GROUP, "topic": "Orders", "queueId": 0, "commitOffset": 7}
        assert ask(master, COMMIT, committed).code == OK
        until(lambda: len(log_of(slave)) > 0 and log_of(slave) == log_of(master))
        until(lambda: send(master, b"first") == OK)  # until the slave's place is known
        for number in range(50):
            assert send(master, b"%d" % number) == OK
        for number in range(30):
            assert send(master, bytes(1 << 20), "Large", number % 4) == OK  # on to the next file
        until(lambda: log_of(slave) == log_of(master))
        assert len(log_of(master)) > LOG_FILE_BYTES
        until(lambda: len(pull(slave)) == 32)  # Its queues, and the topic, come a little later.
        assert pull(slave) == pull(master)
        until(lambda: f'"{GROUP}"'.encode() in ask(slave, ALL_GROUPS).body)
        until(lambda: f'"Orders@{GROUP}"'.encode() in ask(slave, ALL_OFFSETS).body)
        master.kill()
        assert pull(slave, 40)[-1] == b"49"
        assert send(slave, b"refused") == SERVICE_NOT_AVAILABLE


@pytest.mark.nightly
def test_our_slave_finds_our_master_at_a_name_server_of_apaches(tmp_path: Path) -> None:
    with ApacheNamesrv("4.9.7") as namesrv:
        brokers = Brokers(OURS, OURS, tmp_path, namesrv.address, brokerRole="SYNC_MASTER")
        with brokers.make("master") as master:
            assert send(master, b"alone") == SLAVE_NOT_AVAILABLE
            with brokers.make("slave") as slave:
                until(lambda: send(master, b"together") == OK)
                until(lambda: log_of(slave) == log_of(master))


@pytest.mark.nightly
@pytest.mark.parametrize(("of_master", "of_slave"), BOTH_WAYS)
def test_either_may_be_killed_and_the_slave_goes_on_where_it_was(tmp_path: Path, of_master: str, of_slave: str) -> None:
    with OurNamesrv() as namesrv:
        brokers = Brokers(of_master, of_slave, tmp_path, namesrv.address, haHousekeepingInterval=12_000)
        with brokers.make("master") as master:
            with brokers.make("slave") as slave:
                for number in range(20):
                    assert send(master, b"%d" % number) == OK
                until(lambda: log_of(slave) == log_of(master) != b"")
                slave.kill()
            for number in range(20):
                assert send(master, b"while it was away %d" % number) == OK
            with brokers.make("slave") as slave:
                until(lambda: log_of(slave) == log_of(master))
                master.kill()
                with brokers.make("master") as again:
                    assert send(again, b"last") == OK
                    until(lambda: log_of(slave) == log_of(again))
                    again.kill()
                slave.kill()
