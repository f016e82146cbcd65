"""An etcd in the simulation: the JSON gateway as `failover/etcd_client.py` uses it.

Its state survives its process, as that of an etcd of three machines does. Faults: it does not answer, it answers too
late, or it does what it was asked and its answer is lost.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.world import Host

PORT = 2379


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
    """

    keys: dict[bytes, Kept] = field(default_factory=dict)
    leases: dict[int, tuple[int, float]] = field(default_factory=dict)
    revision: int = 1
    loses: float = 0.0
    delays_s: float = 0.0
    granted: int = 0
    elections: int = 0


class FakeEtcd:
    """The process of an etcd."""

    def __init__(self, host: Host, state: EtcdState) -> None:
        self._state = state
        self._scheduler = host.world.scheduler

    async def run(self) -> None:
        """Serve until killed. After a start every lease lasts its whole time, as after an election of etcd."""
        for number, (ttl, _) in self._state.leases.items():
            self._state.leases[number] = ttl, self._scheduler.now + ttl
        await asyncio.start_server(self._serve, "0.0.0.0", PORT)
        await asyncio.get_running_loop().create_future()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.lower().split("\r\n")
            size = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
            question = json.loads(await reader.readexactly(size))
            status, answer = self._answer(head.split()[1].removeprefix("/v3/"), question)
            if self._state.delays_s:
                await asyncio.sleep(self._scheduler.rng.random() * self._state.delays_s)
            if self._scheduler.rng.random() >= self._state.loses:
                body = json.dumps(answer).encode()
                writer.write(b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    def _answer(self, what: str, question: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self._expire()
        state = self._state
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
            state.leases[state.granted] = ttl, self._scheduler.now + ttl
            return 200, {"ID": str(state.granted), "TTL": str(ttl)}
        number = int(question["ID"])
        if what == "lease/keepalive":
            if number not in state.leases:
                return 200, {"result": {"ID": str(number)}}
            ttl, _ = state.leases[number]
            state.leases[number] = ttl, self._scheduler.now + ttl
            return 200, {"result": {"ID": str(number), "TTL": str(ttl)}}
        assert what == "lease/revoke", what
        if number not in state.leases:
            return 404, {"code": 5, "error": "etcdserver: requested lease not found"}
        del state.leases[number]
        self._expire()
        return 200, {}

    def _transact(self, question: dict[str, Any]) -> dict[str, Any]:
        state = self._state
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
                state.keys[key] = Kept(value, state.revision, lease)
                state.elections += key.endswith(b"/leader")
                self._scheduler.note(f"etcd {key.decode()} = {value.decode()}")
            else:
                state.keys.pop(b64decode(each["request_delete_range"]["key"]), None)
        return {"succeeded": True}

    def _expire(self) -> None:
        state = self._state
        for number in [number for number, (_, end) in state.leases.items() if end <= self._scheduler.now]:
            del state.leases[number]
        for key in [key for key, kept in state.keys.items() if kept.lease and kept.lease not in state.leases]:
            del state.keys[key]
            self._scheduler.note(f"etcd {key.decode()} ended")


def _packed(content: bytes) -> str:
    return b64encode(content).decode()
