"""Sessions of one process that are connected without a socket."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparrowmq.broker.grpc_port import connect_sessions
from sparrowmq.errors import RemoteError, RemoteProtocolError, RequestTimeout
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.headers import GetMaxOffset, OffsetReply, UnregisterClient
from sparrowmq.protocol.signature import SigningKey, signer
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Header
from sparrowmq.remoting.budget import Budget, BudgetLimits, SessionLimits
from sparrowmq.remoting.linked_session import FEW_BYTES, LinkedSession
from sparrowmq.remoting.session import Session

ASKED = GetMaxOffset(topic="orders", queue_id=3)


@dataclass
class Broker:
    """Keeps what it is asked, and answers each request so."""

    answer: dict[str, Any] | None = field(default_factory=lambda: {"header": OffsetReply(7)})
    asked: list[Command] = field(default_factory=list)

    def __call__(self, session: Session, command: Command) -> None:
        self.asked.append(command)
        if self.answer is not None:
            session.reply(command, **self.answer)


def client_of(
    broker: Broker, limits: SessionLimits | None = None, budget: Budget | None = None, **options: Any
) -> LinkedSession:
    clock = SystemClock()
    client = LinkedSession(lambda session, command: None, clock, **options)
    connect_sessions(
        client,
        lambda: LinkedSession(broker, clock, limits, budget=budget),
        ("10.0.0.7", 5000),
        ("10.0.0.1", 10911),
    )
    return client


async def test_requests_are_answered_in_their_order_with_the_objects_themselves():
    broker = Broker()
    client = client_of(broker)
    calls = [client.call(GetMaxOffset("orders", number), b"body") for number in range(100)]
    answers = await asyncio.gather(*calls)
    assert [each.header(GetMaxOffset).queue_id for each in broker.asked] == [*range(100)]
    assert broker.asked[0].body == b"body"
    assert all(each.header is broker.answer["header"] for each in answers)  # type: ignore[index]


async def test_a_request_has_the_fields_that_its_bytes_would_have():
    broker = Broker()
    await client_of(broker).call(ASKED)
    assert broker.asked[0].ext_fields() == ASKED.ext_fields()


async def test_a_request_is_signed():
    broker = Broker()
    await client_of(broker, sign=signer("alice", "secret-1")).call(ASKED, b"body")
    [asked] = broker.asked
    assert asked.ext_fields()["AccessKey"] == "alice"
    assert SigningKey("secret-1").has_signed(asked.ext_fields(), asked.body)
    assert asked.header(GetMaxOffset) == ASKED


async def test_a_number_that_java_does_not_have_is_refused_as_from_the_network():
    broker = Broker()
    await client_of(broker).call(GetMaxOffset("orders", 1 << 63))
    with pytest.raises(RemoteProtocolError):
        broker.asked[0].header(GetMaxOffset)


@pytest.mark.parametrize("header", [None, UnregisterClient("x")])
async def test_an_answer_without_the_fields_of_its_request_is_an_error(header: Header | None):
    with pytest.raises(RemoteProtocolError, match="offset"):
        await client_of(Broker({"header": header})).call(ASKED)


async def test_an_answer_has_its_code_its_remark_and_its_body_in_one_piece():
    client = client_of(Broker({"code": 17, "remark": "no such topic"}))
    with pytest.raises(RemoteError, match="no such topic"):
        await client.call(ASKED)
    pieces = [memoryview(b"one"), memoryview(b"two")]
    answer = await client_of(Broker({"header": OffsetReply(7), "body": pieces})).call(ASKED)
    assert answer.body == b"onetwo"


async def test_a_request_that_wants_no_answer_gets_none():
    broker = Broker()
    client = client_of(broker)
    client.tell(ASKED)
    await asyncio.sleep(0)
    assert broker.asked[0].is_oneway
    assert not client._inbox


async def test_a_request_without_an_answer_ends_with_its_time():
    with pytest.raises(RequestTimeout):
        await client_of(Broker(None)).call(ASKED, timeout_s=0.1)


async def test_requests_wait_while_too_many_of_them_are_held():
    broker = Broker(None)
    client = client_of(broker, SessionLimits(waiting_requests=1))
    served = client.other
    assert served is not None
    served.hold(2)
    client.tell(ASKED)
    await asyncio.sleep(0)
    assert not broker.asked
    served.hold(-2)
    await asyncio.sleep(0)
    assert len(broker.asked) == 1


async def test_requests_for_a_session_that_does_not_read_have_limited_memory():
    broker, body = Broker(None), bytes(100_000)
    budget = Budget(SystemClock(), BudgetLimits(waiting_bytes=len(body)))
    clients = [client_of(broker, SessionLimits(waiting_requests=1), budget) for _ in range(2)]
    sessions = [client.other for client in clients]
    assert all(session is not None for session in sessions)
    for client, served in zip(clients, sessions, strict=True):
        served.hold(2)  # type: ignore[union-attr]
        client.tell(ASKED, bytes(FEW_BYTES // 2))
    assert clients[0].has_room_for(body)
    clients[0].tell(ASKED, body)
    assert not clients[0].has_room_for(b"") and not clients[1].has_room_for(body)
    assert clients[1].has_room_for(b"")  # it has few bytes
    sessions[0].hold(-2)  # type: ignore[union-attr]
    await asyncio.sleep(0)
    assert len(broker.asked) == 2 and budget.has_room
    clients[1].tell(ASKED, body)
    assert not budget.has_room and not clients[1].has_room_for(body)
    clients[1].close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert budget.has_room and budget.hold(len(body))
