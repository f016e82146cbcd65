"""Plays calls against the gRPC port of a broker, or of `mqproxy`, in the life of a broker (play.py)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from sparrowmq import Credentials
from sparrowmq.grpc.statuses import Status
from sparrowmq.grpc.wire_types import ClientType, message_class
from sparrowmq.mqproxy.proxy import Proxy, ProxySettings
from sparrowmq.testing import Cluster
from sparrowmq.testing.clock import ManualClock
from tests.fuzz.access.attacks import Case
from tests.fuzz.access.grpc_attacks import Call, codes_of, methods
from tests.fuzz.access.grpc_sound import CLIENT_IDS, grpc_attack
from tests.fuzz.access.grpc_victim import GrpcThings, in_time
from tests.fuzz.access.grpc_wire import GrpcWire
from tests.fuzz.access.identities import IDENTITIES
from tests.fuzz.access.victim import ADMIN, MARKER, Victim

WAVE: Final = 50
_BUGS: Final = ("the server failed to handle", "internal error")
_OF_ANY_TOPIC: Final = "a message cannot be"  # of two types, whatever its topic
# They show whether a name exists, what it is, or what it has.
_SHOWN: Final = frozenset(
    {
        Status.OK,
        Status.TOPIC_NOT_FOUND,
        Status.CONSUMER_GROUP_NOT_FOUND,
        Status.MESSAGE_NOT_FOUND,
        Status.FORBIDDEN,
        Status.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    }
)
_THEIRS: Final = frozenset(
    {"orders", "asks", "jobs", "owners", "poppers", "locks", "waiters", "%RETRY%owners", "%DLQ%owners"}
)
# They concern the client that calls, and the group in their requests says nothing.
_OF_CALLER: Final = frozenset({"Heartbeat", "NotifyClientTermination"})


@asynccontextmanager
async def grpc_address(port: str, cluster: Cluster, clock: ManualClock) -> AsyncIterator[str]:
    """The address of the port to attack: that of the broker, or that of `mqproxy`."""
    if port == "grpc":
        yield cluster.brokers[0].grpc_address
        return
    settings = ProxySettings(port=0, credentials=Credentials(*ADMIN))
    async with Proxy(settings, cluster.namesrv, clock=clock) as proxy:
        yield proxy.address


class GrpcLife:
    """The victim and its attackers at a gRPC port."""

    def __init__(self, address: str, victim: Victim, clock: ManualClock, note: Any) -> None:
        self.things = GrpcThings(address, victim, clock)
        self._address = address
        self._victim = victim
        self._clock = clock
        self._note = note
        self._wires: dict[str, GrpcWire] = {}
        self._faults: list[str] = []
        self._open: dict[int, Case] = {}  # those of a wave without an answer

    async def settle_in(self) -> None:
        """Open the streams of the victim."""
        await self.things.settle_in()

    async def prepare(self) -> None:
        """Renew what a round uses up."""
        await self.things.prepare()

    async def play(self, cases: Iterable[Case], together: bool = True) -> None:
        """Make the calls of some cases, a wave at once or one after the other."""
        cases, size = list(cases), WAVE if together else 1
        for name in dict.fromkeys(case.identity for case in cases):
            await self.introduce(name)
        for wave in (cases[at : at + size] for at in range(0, len(cases), size)):
            await self._victim.beat()
            await self._victim.lock()  # which expires after 60 s by the clock; gRPC has no call that unlocks
            self._open = dict(enumerate(wave))
            try:
                calls = asyncio.gather(*(self._one(*each) for each in enumerate(wave)))
                await in_time(calls, self._clock, lambda: len(self._open))
            except TimeoutError:
                for case in self._open.values():
                    call = grpc_attack(case, self._victim.targets, self._clock.now_ms() // 1000)
                    self._faults.append(f"{case.identity} gets no answer: {call}")

    async def introduce(self, name: str, client_ids: Iterable[str] = CLIENT_IDS) -> GrpcWire:
        """Connect an identity, and have the port know its clients: most calls of unknown ones are refused."""
        identity = IDENTITIES[name]
        wire = self._wires.get(name)
        if wire is None:
            wire = self._wires[name] = GrpcWire(self._address, identity.credentials, self._clock.now_ms)
        own = ("orders", "owners") if identity.may else ("theirs", "theirs")
        command = message_class("TelemetryCommand")()
        command.settings.client_type = ClientType.SIMPLE_CONSUMER
        command.settings.subscription.group.name = own[1]
        command.settings.subscription.subscriptions.add().topic.name = own[0]
        method = next(each for each in methods() if each.is_silent)
        for client_id in dict.fromkeys(client_ids):
            await wire.send(Call(method, client_id, [command], None))
        return wire

    async def answered(self, name: str, call: Call) -> frozenset[int]:
        """The codes of the answers to one call of an identity."""
        wire = await self.introduce(name, (call.client_id,))
        answers = await in_time(wire.send(call), self._clock)
        await wire.end_streams()
        return frozenset().union(*map(codes_of, answers))

    async def judge(self) -> list[str]:
        """What attackers did to what only gRPC has."""
        return await self._judged(self.things.judge())

    async def _judged(self, looking: Awaitable[list[str]]) -> list[str]:
        try:
            return [f"its gRPC things: {fault}" for fault in await looking]
        except (AssertionError, TimeoutError) as error:
            return [f"its gRPC things: {error or type(error).__name__}"]

    async def leaks(self) -> list[str]:
        """What is known only after a minute, what attackers heard that has the victim's marker, and what they learned
        about its names."""
        faults, self._faults = self._faults, []
        faults += await self._judged(self.things.judge_renewals())
        for name, wire in self._wires.items():
            await wire.end_streams()
            if not IDENTITIES[name].may and not IDENTITIES[name].may_hear:
                faults += [f"{name} heard {part[:400]!r}" for part in wire.heard if MARKER in part]
            faults += [f"{name}: {each}" for each in wire.failures if any(bug in each for bug in _BUGS)]
            wire.heard.clear()
            wire.failures.clear()
        return faults

    async def close(self) -> None:
        await self.things.close()
        for wire in self._wires.values():
            await wire.close()

    async def _one(self, number: int, case: Case) -> None:
        call = grpc_attack(case, self._victim.targets, self._clock.now_ms() // 1000)
        wire = self._wires[case.identity]
        codes: frozenset[int] = frozenset()
        for answer in await wire.send(call):
            codes |= codes_of(answer)
            text = str(answer)
            if _OF_ANY_TOPIC in text:
                codes -= {Status.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE}
            self._faults += [f"{call} gets {text[:300]}" for bug in _BUGS if bug in text]
        del self._open[number]
        self._note(case, call, codes)
        if shows := codes & _SHOWN and _shows(case, call):
            self._faults.append(f"{case.identity} learns {sorted(codes)} about {sorted(shows)}: {call}")


def _shows(case: Case, call: Call) -> frozenset[str]:
    """The victim's names in a call, of which its identity should learn nothing."""
    identity = IDENTITIES[case.identity]
    if identity.may or identity.may_hear or identity.may_send or call.method.name in _OF_CALLER:
        return frozenset()
    # "Unknown yet" is never wrong.
    says_nothing = any(call.method.name == "EndTransaction" and not each.resolution for each in call.requests)
    return frozenset() if says_nothing else call.names & _THEIRS
