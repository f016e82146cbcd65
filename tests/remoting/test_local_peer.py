"""A client in the process of its server."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparrowmq.errors import ConnectionClosed, RemoteError, RemoteProtocolError, RequestTimeout
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.client_bodies import ConsumerStatus
from sparrowmq.protocol.requests.headers import (
    CheckTransactionState,
    ConsumeMessageDirectly,
    GetConsumerRunning,
    GetConsumerStatus,
    GetMaxOffset,
    NotifyConsumerIdsChanged,
    OffsetReply,
    PushReply,
    ResetConsumerClientOffset,
    UnregisterClient,
)
from sparrowmq.protocol.requests.pop_headers import PopMessage
from sparrowmq.protocol.requests.request_table import Role
from sparrowmq.protocol.signature import SigningKey, signer
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.connection import Sign
from sparrowmq.protocol.wire.header import Header
from sparrowmq.remoting.budget import Budget, BudgetLimits, SessionLimits
from sparrowmq.remoting.handler import PendingReply, PendingRequest, Reply, handles
from sparrowmq.remoting.local_peer import FEW_BYTES, LocalPeer, LocalServer
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.request_dispatch import Dispatcher
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
    broker: Any,
    limits: SessionLimits | None = None,
    budget: Budget | None = None,
    *,
    sign: Sign | None = None,
    push: Any = None,
) -> LocalPeer:
    server = LocalServer(broker, SystemClock(), "10.0.0.1:10911", limits, budget=budget)
    return LocalPeer(server, ("10.0.0.7", 5000), push, sign)


def ask(client: LocalPeer, request: Any = ASKED, body: bytes = b"", timeout_s: float = 3.0) -> asyncio.Future[Any]:
    return client.call(request, body, timeout_s=timeout_s)


async def test_requests_are_answered_in_their_order_with_the_objects_themselves():
    broker = Broker()
    client = client_of(broker)
    calls = [ask(client, GetMaxOffset("orders", number), b"body") for number in range(100)]
    answers = await asyncio.gather(*calls)
    assert [each.header(GetMaxOffset).queue_id for each in broker.asked] == [*range(100)]
    assert broker.asked[0].body == b"body"
    assert all(each.header is broker.answer["header"] for each in answers)  # type: ignore[index]


async def test_a_request_has_the_fields_that_its_bytes_would_have():
    broker = Broker()
    await ask(client_of(broker))
    assert broker.asked[0].ext_fields() == ASKED.ext_fields()


async def test_a_request_is_signed():
    broker = Broker()
    await ask(client_of(broker, sign=signer("alice", "secret-1")), body=b"body")
    [asked] = broker.asked
    assert asked.ext_fields()["AccessKey"] == "alice"
    assert SigningKey("secret-1").has_signed(asked.ext_fields(), asked.body)
    assert asked.header(GetMaxOffset) == ASKED


async def test_a_number_that_java_does_not_have_is_refused_as_from_the_network():
    broker = Broker()
    await ask(client_of(broker), GetMaxOffset("orders", 1 << 63))
    with pytest.raises(RemoteProtocolError):
        broker.asked[0].header(GetMaxOffset)


@pytest.mark.parametrize("header", [None, UnregisterClient("x")])
async def test_an_answer_without_the_fields_of_its_request_is_an_error(header: Header | None):
    with pytest.raises(RemoteProtocolError, match="offset"):
        await ask(client_of(Broker({"header": header})))


async def test_an_answer_has_its_code_its_remark_and_its_body_in_one_piece():
    client = client_of(Broker({"code": 17, "remark": "no such topic"}))
    with pytest.raises(RemoteError, match="no such topic"):
        await ask(client)
    pieces = [memoryview(b"one"), memoryview(b"two")]
    answer = await ask(client_of(Broker({"header": OffsetReply(7), "body": pieces})))
    assert answer.body == b"onetwo"


async def test_a_request_that_wants_no_answer_gets_none():
    broker = Broker()
    client = client_of(broker)
    client.tell(ASKED)
    assert broker.asked[0].is_oneway
    assert not client._wire.in_flight


async def test_a_request_without_an_answer_ends_with_its_time():
    with pytest.raises(RequestTimeout):
        await ask(client_of(Broker(None)), timeout_s=0.1)


async def test_requests_wait_while_too_many_of_them_are_held():
    broker = Broker(None)
    client = client_of(broker, SessionLimits(waiting_requests=1))
    client.hold(2)
    client.tell(ASKED)
    await asyncio.sleep(0)
    assert not broker.asked
    client.hold(-2)
    await asyncio.sleep(0)
    assert len(broker.asked) == 1


async def test_requests_for_a_session_that_does_not_read_have_limited_memory():
    broker, body = Broker(None), bytes(100_000)
    budget = Budget(SystemClock(), BudgetLimits(waiting_bytes=len(body)))
    clients = [client_of(broker, SessionLimits(waiting_requests=1), budget) for _ in range(2)]
    waiting = []
    for client in clients:
        client.hold(2)
        waiting.append(ask(client, body=bytes(FEW_BYTES // 2)))
    assert clients[0].has_room_for(body)
    waiting.append(ask(clients[0], body=body))
    assert not clients[0].has_room_for(b"") and not clients[1].has_room_for(body)
    assert clients[1].has_room_for(b"")  # it has few bytes
    clients[0].hold(-2)
    await asyncio.sleep(0)
    assert len(broker.asked) == 2 and budget.has_room
    waiting.append(ask(clients[1], body=body))
    assert not budget.has_room and not clients[1].has_room_for(body)
    for client in clients:
        client.close()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(end) for end in ended} == {ConnectionClosed}
    assert budget.has_room and budget.hold(len(body))


class Pushes:
    """A client that answers what the server asks of it."""

    @handles(NotifyConsumerIdsChanged, CheckTransactionState, ResetConsumerClientOffset, PushReply)
    def ignore(self, header: Any, body: bytes, peer: Peer) -> None:
        pass

    @handles(GetConsumerStatus)
    def status(self, header: GetConsumerStatus, body: bytes, peer: Peer) -> Reply:
        if body == b"refuse":
            raise RemoteError(1, "no such consumer")
        return Reply(body=ConsumerStatus())

    @handles(GetConsumerRunning, ConsumeMessageDirectly)
    async def wait(self, header: Any, body: bytes, peer: Peer) -> None:
        await asyncio.Event().wait()


async def test_a_server_gets_the_answers_and_the_errors_of_its_client():
    client = client_of(Broker(), push=Dispatcher(Role.CLIENT, [Pushes()], asyncio.ensure_future))
    client.tell(NotifyConsumerIdsChanged("g"))
    assert (await client.call(GetConsumerStatus("orders", "g"))).body == ConsumerStatus().encode()
    with pytest.raises(RemoteError, match="no such consumer"):
        await client.call(GetConsumerStatus("orders", "g"), b"refuse")
    with pytest.raises(RequestTimeout, match=r"10\.0\.0\.7:5000"):
        await client.call(GetConsumerRunning("g", "c"), timeout_s=0.1)
    waiting = client.call(GetConsumerRunning("g", "c"))
    client.close()
    with pytest.raises(ConnectionClosed, match=r"10\.0\.0\.7:5000"):
        await waiting


async def test_a_pop_that_no_caller_waits_for_is_cancelled():
    cancelled: list[PendingReply] = []

    class HeldReply(PendingReply):
        def cancel(self) -> None:
            cancelled.append(self)

    def hold(peer: Session, command: Command) -> None:
        held = HeldReply()
        held.request = PendingRequest(peer, command, lambda: None, None, print)
        peer.hold_reply(held)

    client = client_of(hold)
    pops = [ask(client, PopMessage("g", "t", -1, 32, 30_000, 20_000, 0, 0)) for _ in range(2)]
    await asyncio.sleep(0)
    assert not cancelled
    pops[1].cancel()
    await asyncio.sleep(0)
    assert [each.request.command.opaque for each in cancelled if each.request] == [2]
    client.close()
    await asyncio.gather(*pops, return_exceptions=True)
    assert len(cancelled) == 1
