"""Brokers of one name that elect their master in a real etcd, in this process, for the tests of elections."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.failover.etcd import Etcd
from sparrowmq.broker.failover.group_state import GroupState
from sparrowmq.broker.member import Member
from sparrowmq.errors import EtcdFailed, NetworkError, RemoteError, SparrowError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.admin_headers import GetBrokerRuntime
from sparrowmq.protocol.requests.bodies import KVTable
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush
from tests.broker.live import decoded, pull_request, send_request
from tests.interop.apache import free_ports
from tests.interop.etcd import LiveEtcd

OK = 0
NOT_REPLICATED = (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT)
ANSWERED = (OK, *NOT_REPLICATED)
LEASE_S = 2
LONG_LEASE_S = 10  # where no test waits for the end of a lease, and a busy machine may halt this process


class Members:
    """Up to three brokers of one name, in this process."""

    def __init__(self, path: Path, etcd: LiveEtcd, name: str) -> None:
        self.name = name
        self.ask = Etcd([etcd.endpoint], SystemClock(), 5.0)
        self.pool = Pool(SystemClock())
        ports = free_ports(6)
        self._settings = {
            number: BrokerSettings(
                name=name,
                broker_id=number,
                role=BrokerRole.SYNC_MASTER,
                port=ports[2 * number - 2],
                ha_port=ports[2 * number - 1],
                fast_port=0,
                failover=True,
                etcd=(etcd.endpoint,),
                lease_s=LEASE_S,
                store_path=path / f"store-{number}",
                commit_log_file_bytes=1 << 20,
                flush=Flush.ASYNC,
                index=False,
                ha_heartbeat_ms=100,
                slave_reads=True,
            )
            for number in (1, 2, 3)
        }
        self._running: dict[int, tuple[Member, asyncio.Task[None]]] = {}

    def settings(self, number: int) -> BrokerSettings:
        return self._settings[number]

    def change(self, number: int, **changes: Any) -> None:
        """Give one other settings at its next start."""
        self._settings[number] = replace(self._settings[number], **changes)

    async def start(self, number: int, **changes: Any) -> Member:
        member = Member(replace(self._settings[number], **changes))
        up: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            async with member:
                up.set_result(None)
                await member.serve()

        task = asyncio.ensure_future(run())
        await asyncio.wait({task, up}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        self._running[number] = (member, task)
        return member

    async def stop(self, number: int) -> None:
        _, task = self._running.pop(number)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def task(self, number: int) -> asyncio.Task[None]:
        return self._running[number][1]

    async def power_cut(self, *numbers: int) -> None:
        """End them without a word to etcd, which keeps what it has of them. The lease of a master ends at once."""
        leases: list[int] = []
        for number in numbers:
            member = self._running[number][0]
            leases += [member._lease.number] if member._lease is not None else []
            member._etcd._endpoints = ["127.0.0.1:1"]
            in_sync = member.broker.term.in_sync if member.broker else None
            if in_sync is not None:
                in_sync._commit = self.no_answer
        for number in numbers:
            await self.stop(number)
        for lease in leases:
            await self.ask.revoke(lease)

    def take_disk(self, number: int) -> None:
        """Of one that does not run: its folder is not there any more."""
        folder = self._settings[number].store_path
        folder.rename(folder.with_name(f"{folder.name}-away"))

    def give_disk_back(self, number: int) -> None:
        folder = self._settings[number].store_path
        shutil.rmtree(folder)
        folder.with_name(f"{folder.name}-away").rename(folder)

    async def stop_all(self) -> None:
        for number in list(self._running):
            with suppress(SparrowError):
                await self.stop(number)
        self.pool.close()

    async def leader(self, *among: int) -> int:
        """Who leads, once one of them does."""
        async with asyncio.timeout(30):
            while True:
                for number in among or (1, 2, 3):
                    if self._leads(number) and await self.send(number, b"?", "probe") in ANSWERED:
                        return number
                await asyncio.sleep(0.02)

    def _leads(self, number: int) -> bool:
        return number in self._running and self._running[number][0].leads

    def _knows(self, numbers: tuple[int, ...]) -> bool:
        """Whether a master knows what etcd does."""
        terms = [member.broker.term for member, _ in self._running.values() if member.leads and member.broker]
        known = [term.in_sync for term in terms if term and term.in_sync]
        return any(each.is_settled and each.members == set(numbers) for each in known)

    async def in_sync(self, *numbers: int) -> None:
        """Return once etcd and the master know these to be in sync, and no others."""
        prefix = f"/sparrowmq/DefaultCluster/{self.name}/"
        async with asyncio.timeout(30):
            while True:
                kept = await self.ask.below(prefix)
                shown = b'"in_sync":[' + b",".join(b"%d" % number for number in numbers) + b"]"
                state = kept.get(prefix + "state")
                if state is not None and shown in state.value and self._knows(numbers):
                    return
                await asyncio.sleep(0.02)

    async def two_in_sync(self) -> None:
        """Start a master, 1, and a slave, 2, that is in sync with it."""
        await self.start(1)
        await self.leader()
        await self.start(2)
        await self.in_sync(1, 2)

    async def second_leads(self) -> None:
        """Both have one message; then the first is stopped, and the second becomes the master."""
        await self.two_in_sync()
        assert await self.send(1, b"both") == OK
        await self.stop(1)
        await self.leader(2)

    async def send(self, number: int, body: bytes, topic: str = "orders") -> int:
        """The code of the answer; while it becomes another one there is none, and SERVICE_NOT_AVAILABLE is as good."""
        try:
            session = await self.pool.session(f"127.0.0.1:{self._settings[number].port}")
            answer = await session.call(send_request(topic), body, accept={10, 11, 12}, timeout_s=10)
        except RemoteError as error:
            return error.code
        except NetworkError:
            return ResponseCode.SERVICE_NOT_AVAILABLE
        return answer.code

    async def no_answer(self, wanted: GroupState) -> GroupState | None:
        """An etcd that is away."""
        raise EtcdFailed("no answer")

    async def order(self, number: int, request: Request[Any]) -> Response[Any]:
        """The answer of a member to an operator's order. Raises: RemoteError."""
        session = await self.pool.session(f"127.0.0.1:{self._settings[number].port}")
        return await session.call(request, timeout_s=60)

    async def state(self) -> GroupState:
        """What etcd has of the group."""
        key = f"/sparrowmq/DefaultCluster/{self.name}/state"
        return GroupState.decode((await self.ask.below(key))[key].value)

    async def wipe_etcd(self) -> None:
        """Delete all that etcd has of the group."""
        kept = await self.ask.below(f"/sparrowmq/DefaultCluster/{self.name}/")
        await self.ask.change({}, {}, deletes=list(kept))

    def member(self, number: int) -> Member:
        """One that runs."""
        return self._running[number][0]

    async def until_leads(self, *among: int) -> int:
        """The member that is elected first; it may not serve yet."""
        async with asyncio.timeout(30):
            while True:
                for number in among or (1, 2, 3):
                    if self._leads(number):
                        return number
                await asyncio.sleep(0.002)

    async def shows(self, number: int, words: str) -> None:
        """Return once the problem that it shows has these words."""
        async with asyncio.timeout(30):
            while words not in await self.problem(number):
                await asyncio.sleep(0.05)

    async def all_in_sync(self) -> None:
        """Start three members, 1 is the master, and all are in sync."""
        await self.two_in_sync()
        await self.start(3)
        await self.in_sync(1, 2, 3)

    async def problem(self, number: int) -> str:
        """Why it neither leads nor follows, as operators are told."""
        session = await self.pool.session(f"127.0.0.1:{self._settings[number].port}")
        told = KVTable.decode((await session.call(GetBrokerRuntime())).body).table
        return told.get("replicationProblem", "")

    async def bodies(self, number: int) -> list[bytes]:
        session = await self.pool.session(f"127.0.0.1:{self._settings[number].port}")
        answer = await session.call(pull_request("orders"), accept={19, 20, 21}, timeout_s=10)
        return [bytes(message.body) for message in decoded(answer)]

    async def shows_bodies(self, number: int, *bodies: bytes) -> None:
        """Return once a member shows these bodies to consumers."""
        async with asyncio.timeout(20):
            while True:
                with suppress(RemoteError):  # it does not know the topic yet
                    if await self.bodies(number) == list(bodies):
                        return
                await asyncio.sleep(0.02)

    async def all_bodies(self, number: int) -> list[bytes]:
        """The bodies of all queues of the topic, with a pull for each 32 messages."""
        session = await self.pool.session(f"127.0.0.1:{self._settings[number].port}")
        found: list[bytes] = []
        for queue_id in range(4):
            offset = 0
            while True:
                asked = pull_request("orders", queue_id=queue_id, offset=offset)
                answer = await session.call(asked, accept={19, 20, 21}, timeout_s=10)
                some = [bytes(message.body) for message in decoded(answer)] if not answer.code else []
                if not some:
                    break
                found += some
                offset += len(some)
        return found

    def store(self, number: int) -> MessageStore:
        """The store of one that does not run."""
        return MessageStore.open(self._settings[number].store(self._settings[number].port))

    def log(self, number: int) -> bytes:
        files = sorted((self._settings[number].store_path / "commitlog").glob("0*"))
        return b"".join(file.read_bytes() for file in files).rstrip(b"\0")

    async def same(self, *numbers: int) -> None:
        async with asyncio.timeout(30):
            while len({self.log(number) for number in numbers}) != 1:
                await asyncio.sleep(0.02)
