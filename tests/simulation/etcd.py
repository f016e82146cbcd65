"""An etcd in the simulation: the JSON gateway as `failover/etcd_client.py` uses it.

Its state survives its process, as that of an etcd of three machines does. Faults: it does not answer, it answers too
late, or it does what it was asked and its answer is lost.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final

from tests.simulation.world import Host

PORT: Final = 2379
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Moment(Enum):
    """A change of the group that etcd sees."""

    ELECTED = "a member was elected"
    JOINED = "a member is in sync from now on"
    LEFT = "a member is not in sync any more"


@dataclass
class Kept:
    """A key's value."""

    value: bytes
    version: int
    lease: int


@dataclass
class EtcdState:
    """What etcd stores.

    Attributes:
        leases: by number, the time to live and the end.
        loses: the share of answers that are lost.
        delays_s: the longest delay of an answer.
        elections: how many leaders there were.
        is_orphaned: the process of the last leader died, and no other one was elected since.
        failovers: how many elections came after the death of a leader's process.
        leader: the member that was elected last.
        overlaps_until: until then the master of a lost lease may not know that another one leads.
        lacks_state: it has lost its data, and no member was elected since.
        on_moment: called with each moment and its member.
    """

    keys: dict[bytes, Kept] = field(default_factory=dict)
    leases: dict[int, tuple[int, float]] = field(default_factory=dict)
    revision: int = 1
    loses: float = 0.0
    delays_s: float = 0.0
    granted: int = 0
    elections: int = 0
    is_orphaned: bool = False
    failovers: int = 0
    leader: int | None = None
    overlaps_until: float = 0.0
    lacks_state: bool = False
    on_moment: Callable[[Moment, int], object] = lambda moment, member: None

    def lose_lease(self, now: float) -> None:
        """Forget the lease of the leader."""
        for key, kept in self.keys.items():
            if key.endswith(b"/leader") and kept.lease in self.leases:
                ttl, _ = self.leases.pop(kept.lease)
                self.overlaps_until = now + ttl

    def lose_all(self, now: float) -> None:
        """Forget everything, as an etcd that is set up again."""
        self.lose_lease(now)
        self.keys.clear()
        self.leases.clear()
        self.revision = 1
        self.lacks_state = True

    def note(self, key: bytes, value: bytes, before: bytes | None) -> None:
        """Count the elections, and report the moments of a change."""
        if key.endswith(b"/leader"):
            self.elections += 1
            self.failovers += self.is_orphaned
            self.is_orphaned = self.lacks_state = False
            self.leader = int(json.loads(value)["member"])
            self.on_moment(Moment.ELECTED, self.leader)
        elif key.endswith(b"/state") and before is not None:
            old, new = (set(json.loads(each)["in_sync"]) for each in (before, value))
            for moment, members in ((Moment.JOINED, new - old), (Moment.LEFT, old - new)):
                for member in sorted(members):
                    self.on_moment(moment, member)


class FakeEtcd:
    """The process of an etcd."""

    def __init__(self, host: Host, state: EtcdState) -> None:
        self.state = state
        self.scheduler = host.world.scheduler

    async def run(self) -> None:
        """Serve until killed. After a start every lease lasts its whole time, as after an election of etcd."""
        for number, (ttl, _) in self.state.leases.items():
            self.state.leases[number] = ttl, self.scheduler.now + ttl
        loop = asyncio.get_running_loop()
        await loop.create_server(partial(_Question, self, loop), "0.0.0.0", PORT)
        await loop.create_future()

    def answered(self, question: bytes) -> bytes | None:
        """Return the answer to a request; None while it is not whole."""
        head, _, body = question.partition(b"\r\n\r\n")
        size = _LENGTH.search(head)
        if size is None or len(body) < int(size[1]):
            return None
        status, answer = self._answer(head.split(maxsplit=2)[1][len("/v3/") :].decode(), json.loads(body))
        content = json.dumps(answer).encode()
        return b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (status, len(content)) + content

    def _answer(self, what: str, question: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self._expire()
        state = self.state
        if what == "kv/range":
            begin, end = b64decode(question["key"]), b64decode(question["range_end"])
            found = [
                {"key": _packed(key), "value": _packed(kept.value), "mod_revision": str(kept.version)}
                for key, kept in sorted(state.keys.items())
                if begin <= key < end
            ]
            return 200, {"kvs": found} if found else {}
        if what == "kv/txn":
            return 200, self._transact(question)
        if what == "lease/grant":
            state.granted += 1
            ttl = int(question["TTL"])
            state.leases[state.granted] = ttl, self.scheduler.now + ttl
            return 200, {"ID": str(state.granted), "TTL": str(ttl)}
        number = int(question["ID"])
        if what == "lease/keepalive":
            if number not in state.leases:
                return 200, {"result": {"ID": str(number)}}
            ttl, _ = state.leases[number]
            state.leases[number] = ttl, self.scheduler.now + ttl
            return 200, {"result": {"ID": str(number), "TTL": str(ttl)}}
        assert what == "lease/revoke", what
        if number not in state.leases:
            return 404, {"code": 5, "error": "etcdserver: requested lease not found"}
        del state.leases[number]
        self._expire()
        return 200, {}

    def _transact(self, question: dict[str, Any]) -> dict[str, Any]:
        state = self.state
        for compare in question.get("compare", ()):
            kept = state.keys.get(b64decode(compare["key"]))
            if (kept.version if kept else 0) != int(compare["mod_revision"]):
                return {}
        state.revision += 1
        for each in question.get("success", ()):
            if "request_put" in each:
                put = each["request_put"]
                lease = int(put.get("lease", 0))
                if lease and lease not in state.leases:
                    return {}
                key, value = b64decode(put["key"]), b64decode(put["value"])
                before = state.keys.get(key)
                state.keys[key] = Kept(value, state.revision, lease)
                state.note(key, value, before.value if before is not None else None)
                self.scheduler.note(f"etcd {key.decode()} = {value.decode()}")
            else:
                state.keys.pop(b64decode(each["request_delete_range"]["key"]), None)
        return {"succeeded": True}

    def _expire(self) -> None:
        state = self.state
        for number in [number for number, (_, end) in state.leases.items() if end <= self.scheduler.now]:
            del state.leases[number]
        for key in [key for key, kept in state.keys.items() if kept.lease and kept.lease not in state.leases]:
            del state.keys[key]
            self.scheduler.note(f"etcd {key.decode()} ended")


class _Question(asyncio.Protocol):
    """A connection with one request."""

    def __init__(self, etcd: FakeEtcd, loop: asyncio.AbstractEventLoop) -> None:
        self._etcd = etcd
        self._loop = loop
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        answer, rng = self._etcd.answered(self._got), self._etcd.scheduler.rng
        if answer is None:
            return
        self._got = b""
        delays_s = self._etcd.state.delays_s
        if delays_s:
            self._loop.call_later(rng.random() * delays_s, self._end, answer)
        else:
            self._end(answer)

    def _end(self, answer: bytes) -> None:
        if self._etcd.scheduler.rng.random() >= self._etcd.state.loses:
            self._transport.write(answer)
        self._transport.close()


def _packed(content: bytes) -> str:
    return b64encode(content).decode()
