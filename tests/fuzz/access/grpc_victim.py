"""The things of the victim that only clients of the gRPC port have, and the judge of them.

jobs       messages that a push consumer of group `poppers` works on: the port renews their handles
orders     an open transaction, whose producer is asked on a stream, and a message for later with its recall handle
asks       a topic that it sends to
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from sparrowmq.grpc.client_settings import set_ms
from sparrowmq.grpc.wire_types import ClientType, MessageType, Resolution, message_class
from sparrowmq.testing.clock import ManualClock
from tests.fuzz.access.grpc_attacks import Call, methods
from tests.fuzz.access.grpc_wire import GrpcWire
from tests.fuzz.access.identities import FORBIDDEN
from tests.fuzz.access.judge import ALLOWED
from tests.fuzz.access.victim import MARKER, OWNER, Victim
from tests.grpc.scripted import named

OK: Final = 20000
HELD: Final = 3  # messages of a round
LOOK_S: Final = 5
RENEWED_S: Final = 65  # after this time a message that is not renewed is visible again
STEP_S: Final = 2.0  # of the clock, while a call has no answer
QUIET_S: Final = 0.02  # without an answer for so long, all calls wait for the clock
PATIENCE_S: Final = 20.0  # no call may wait longer by the clock
HANG_S: Final = 20.0
CLIENT_ID: Final = "owner-grpc"
_PLACE: Final = {"topic": named("jobs"), "group": named("poppers")}


class GrpcThings:
    """The owner at the gRPC port."""

    def __init__(self, address: str, victim: Victim, clock: ManualClock) -> None:
        self._victim = victim
        self._clock = clock
        self._wire = GrpcWire(address, OWNER, clock.now_ms)
        self._handles: list[tuple[bytes, str]] = []
        self._transaction = ""
        self._sent = 0

    async def settle_in(self) -> None:
        """Open the streams of a consumer and of a producer."""
        consumer = message_class("TelemetryCommand")()
        consumer.settings.client_type = ClientType.PUSH_CONSUMER
        consumer.settings.subscription.group.name = "poppers"
        consumer.settings.subscription.subscriptions.add().topic.name = "jobs"
        producer = message_class("TelemetryCommand")()
        producer.settings.client_type = ClientType.PRODUCER
        producer.settings.publishing.topics.add(name="orders")
        for client_id, command in ((CLIENT_ID, consumer), (f"{CLIENT_ID}-2", producer)):
            assert await self._call("Telemetry", command, client_id), "a stream has no answer"
        await self._received()

    async def prepare(self) -> None:
        """Renew what a round uses up."""
        victim, own = self._victim, [b"job %d" % (self._sent + number) for number in range(HELD)]
        for body in own:
            await self._send("jobs", body)
        received = await self._received()
        self._handles = [each for each in received if each[0].startswith(MARKER)]
        assert len(self._handles) == HELD, "the owner gets its messages"
        assert {body for body, _ in received}.isdisjoint((ALLOWED, FORBIDDEN)), "no other may send to it"
        half = await self._send("orders", b"grpc %d" % victim.round, message_type=MessageType.TRANSACTION)
        self._transaction = half.transaction_id
        later = self._sent
        timed = await self._send("orders", b"grpc later %d" % later, due_s=victim.timer_s)
        victim.late.append(b"%s grpc later %d" % (MARKER, later))
        place = {"topic": "jobs", "group": "poppers", "client_id": CLIENT_ID}
        for number, (_, handle) in enumerate(self._handles):
            victim.targets[f"popped-{number}"] = {**place, "receipt_handle": handle}
        victim.targets["grpc-half"] = {"topic": "orders", "transaction_id": half.transaction_id}
        victim.targets["grpc-later"] = {"topic": "orders", "recall_handle": timed.recall_handle}
        victim.targets["asks"] = {"topic": "asks", "group": "waiters"}

    async def judge(self) -> list[str]:
        """The attacks on the transaction of this round. It ends, and its message is in `orders`."""
        end = {"topic": named("orders"), "transaction_id": self._transaction, "resolution": Resolution.COMMIT}
        code = (await self._ask("EndTransaction", **end)).status.code
        self._victim.unread.append(b"%s grpc %d" % (MARKER, self._victim.round))
        return [] if code == OK else [f"the commit is refused with {code}"]

    async def judge_renewals(self) -> list[str]:
        """The attacks on the messages that a consumer works on. Lets a minute pass."""
        for _ in range(RENEWED_S // LOOK_S):
            await self._clock.advance(LOOK_S)
            await self._victim.beat()
            await self._ask("Heartbeat", group=named("poppers"))
        faults = [f"{body!r} is visible before its consumer is done" for body, _ in await self._received()]
        for body, handle in self._handles:
            entry = {"receipt_handle": handle, "message_id": "01AB"}
            code = (await self._ask("AckMessage", **_PLACE, entries=[entry])).status.code
            faults += [] if code == OK else [f"the acknowledgement of {body!r} is refused with {code}"]
        self._handles = []
        self._wire.heard.clear()
        return faults

    async def close(self) -> None:
        await self._wire.close()

    async def _received(self) -> list[tuple[bytes, str]]:
        """The bodies and handles of one receive."""
        request = message_class("ReceiveMessageRequest")(batch_size=32, auto_renew=True, group=named("poppers"))
        request.message_queue.topic.name = "jobs"
        request.message_queue.id = -1
        request.message_queue.broker.name = "broker-0"
        set_ms(request.long_polling_timeout, 0)
        answers = await self._call("ReceiveMessage", request)
        found = [each.message for each in answers if each.HasField("message")]
        return [(each.body, each.system_properties.receipt_handle) for each in found]

    async def _send(self, topic: str, body: bytes, due_s: int = 0, **system: Any) -> Any:
        """Send one message. Returns the entry of the answer."""
        made = message_class("Message")(topic=named(topic), body=b"%s %s" % (MARKER, body))
        self._sent += 1
        made.system_properties.message_id = f"7F00000100002A9F{self._sent:016}"
        for name, value in system.items():
            setattr(made.system_properties, name, value)
        if due_s:
            made.system_properties.delivery_timestamp.seconds = self._clock.now_ms() // 1000 + due_s
        answer = await self._ask("SendMessage", messages=[made], client_id=f"{CLIENT_ID}-2")
        assert answer.status.code == OK, f"the owner's send gets {answer.status}"
        return answer.entries[0]

    async def _ask(self, name: str, client_id: str = CLIENT_ID, **fields: Any) -> Any:
        [answer] = await self._call(name, message_class(f"{name}Request")(**fields), client_id)
        return answer

    async def _call(self, name: str, request: Any, client_id: str = CLIENT_ID) -> list[Any]:
        method = next(each for each in methods() if each.name == name)
        return await in_time(self._wire.send(Call(method, client_id, [request], None)), self._clock)


async def in_time(
    asked: Awaitable[list[Any]], clock: ManualClock, progress: Callable[[], int] = lambda: 0
) -> list[Any]:
    """The answers of calls. The clock's time passes only while no answer comes, so `progress` stays the same."""
    task = asyncio.ensure_future(asked)
    until_s, before = clock.monotonic() + PATIENCE_S, -1
    while clock.monotonic() < until_s:
        done, _ = await asyncio.wait([task], timeout=QUIET_S)
        if done:
            return await task
        before, last = progress(), before
        if before == last:
            await clock.advance(STEP_S)
    async with asyncio.timeout(HANG_S):
        return await task
