"""Master and slave as real processes, killed while messages come; what was acknowledged is at both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sparrowmq import connect
from sparrowmq.client.sending.send_result import SendStatus
from sparrowmq.store.care.check import verify
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from tests.interop.apache import free_ports
from tests.interop.servers import OurBroker, OurNamesrv
from tests.store.stores import bodies

LOG_FILE_BYTES = 1 << 20


class Processes:
    """A name server, and a master and a slave of the same name that come and go."""

    def __init__(self, path: Path, namesrv: str, stack: ExitStack, **both: Any) -> None:
        self.namesrv = namesrv
        self._path = path
        self._stack = stack
        self._ports = free_ports(4)
        alive = {"haSendHeartbeatInterval": 500, "haHousekeepingInterval": 2000}
        self._both = {"mappedFileSizeCommitLog": LOG_FILE_BYTES, **alive, **both}

    def master(self, **more: Any) -> OurBroker:
        conf = self._both | {"brokerRole": "SYNC_MASTER", "haListenPort": self._ports[1]} | more
        return self._stack.enter_context(OurBroker(self.namesrv, self._path / "master", conf, self._ports[0]))

    def slave(self, **more: Any) -> OurBroker:
        conf = self._both | {"brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": "true"} | more
        return self._stack.enter_context(OurBroker(self.namesrv, self._path / "slave", conf, self._ports[2]))

    def store(self, who: str) -> StoreSettings:
        return StoreSettings(
            self._path / who,
            commit_log_file_size=LOG_FILE_BYTES,
            consume_queue_file_entries=300_000,
            index_slots=5000,
            index_entries=20_000,
        )

    def log(self, who: str) -> bytes:
        files = sorted((self._path / who / "commitlog").glob("0*"))
        return b"".join(file.read_bytes() for file in files).rstrip(b"\0")

    def kept(self, who: str) -> list[bytes]:
        """What all queues of the topic hold, after recovery and verification."""
        with MessageStore.open(self.store(who)) as store:
            kept = [body for number in range(4) for body in bodies(store, "orders", number)]
        assert list(verify(self.store(who))) == []
        return kept


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with ExitStack() as stack:
        namesrv = stack.enter_context(OurNamesrv())
        yield Processes(tmp_path, namesrv.address, stack)


async def until(condition: Any, limit_s: float = 30) -> None:
    deadline = asyncio.get_running_loop().time() + limit_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it never came to pass"
        await asyncio.sleep(0.02)


class Sending:
    """Sends without pause, and remembers what was acknowledged as being at a slave, too."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self.safe: list[bytes] = []
        self.count = 0

    async def run(self) -> None:
        async with connect(self._namesrv) as mq, asyncio.TaskGroup() as senders:
            for _ in range(16):
                senders.create_task(self._send(mq))

    async def _send(self, mq: Any) -> None:
        while True:
            self.count += 1
            body = b"%06d" % self.count
            try:
                sent = await mq.send("orders", body)
            except Exception:
                await asyncio.sleep(0.05)
                continue
            if sent.status is SendStatus.OK:
                self.safe.append(body)
            else:
                # Or tens of thousands come while the slave is away, and each is looked at.
                await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whom", "kills"),
    [
        ("master", 1),
        ("slave", 2),
        pytest.param("master", 5, marks=[pytest.mark.nightly, pytest.mark.timeout(300)]),
    ],
)
async def test_what_a_synchronous_master_acknowledged_is_at_the_slave_whoever_is_killed(
    processes: Processes, whom: str, kills: int
) -> None:
    master = await asyncio.to_thread(processes.master)
    slave = await asyncio.to_thread(processes.slave)
    sending = Sending(processes.namesrv)
    running = asyncio.ensure_future(sending.run())
    for _ in range(kills):
        before = len(sending.safe)
        await until(lambda: len(sending.safe) > before + 200)  # noqa: B023
        if whom == "master":
            master.kill()
            master = await asyncio.to_thread(processes.master)
        else:
            slave.kill()
            slave = await asyncio.to_thread(processes.slave)
    before = len(sending.safe)
    await until(lambda: len(sending.safe) > before + 200)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await until(lambda: processes.log("slave") == processes.log("master"))
    master.kill()
    slave.kill()
    assert set(sending.safe) <= set(processes.kept("slave"))
    assert set(sending.safe) <= set(processes.kept("master"))
