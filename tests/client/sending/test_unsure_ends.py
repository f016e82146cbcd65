import asyncio

import pytest

from sparrowmq.client.sending import transaction as module
from sparrowmq.client.sending.transaction import EndRetries
from sparrowmq.errors import A_SLAVE, ClientClosed
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.headers import EndTransaction, HeartBeatReply
from sparrowmq.protocol.wire.command import ONEWAY_FLAG
from sparrowmq.remoting.handler import Reply
from tests.client.cluster.test_broker_sessions import World
from tests.client.conftest import until

END = RequestCode.END_TRANSACTION
OF_SLAVE = Reply(ResponseCode.SLAVE_NOT_AVAILABLE, remark=f"end transaction is forbidden: {A_SLAVE}")
LATE = Reply(ResponseCode.FLUSH_SLAVE_TIMEOUT, remark="no slave has it")


def end(number):
    return EndTransaction("g", number, number, 8, msg_id="id", topic="t")


class Ending(World):
    """The ends of a group at a scripted broker of ours."""

    def __init__(self, peer) -> None:
        super().__init__(peer)
        self.peer = peer
        self.tasks: list[asyncio.Task] = []
        self.is_open = True
        self.ends = EndRetries(self.brokers, self.clock, self._spawn_here)

    def _spawn_here(self, coroutine, name):
        if not self.is_open:
            coroutine.close()
            raise ClientClosed("closed")
        self.tasks.append(asyncio.create_task(coroutine, name=name))
        return self.tasks[-1]

    async def tell(self, number):
        session = await self.brokers.of("broker-a")
        self.ends.send_end(session, "broker-a", end(number))

    def seen(self):
        """The number of each end, and whether it was one-way."""
        commands = self.peer.requests(END)
        return [(int(each.ext_fields()["tranStateTableOffset"]), bool(each.flag & ONEWAY_FLAG)) for each in commands]

    async def sees(self, *ends):
        async with asyncio.timeout(10):
            while self.seen() != list(ends):
                await self.clock.advance(module.PAUSE_S / 10)
                await asyncio.sleep(0.001)

    async def is_master(self):
        await self.tell(0)
        await until(lambda: self.ends._recent_ends)

    async def cut(self):
        before = self.brokers.open_session(self.peer.address)
        for session in self.peer.sessions:
            session.close()
        await until(lambda: before is not None and before.closed)


@pytest.fixture
async def ending(peer):
    peer.has("t")
    peer.usual[END] = lambda _: Reply()
    peer.usual[RequestCode.HEART_BEAT] = lambda _: Reply(header=HeartBeatReply(takes_reasons=True))
    made = Ending(peer)
    await made.routes.of("t")
    yield made
    made.pool.close()


async def test_the_first_end_of_a_connection_is_answered_and_others_are_one_way(ending):
    await ending.is_master()
    await ending.tell(1)
    await ending.sees((0, False), (1, True))


@pytest.mark.parametrize("refusal", [OF_SLAVE, LATE])
async def test_an_end_that_a_master_has_not_is_asked_again(peer, ending, refusal):
    peer.script(END, refusal, refusal)
    await ending.tell(0)
    await ending.sees((0, False), (0, False), (0, False))
    await until(lambda: ending.tasks[0].done())
    assert ending.ends._recent_ends and not ending.ends._waiting_ends


async def test_another_refusal_stays(peer, ending):
    peer.script(END, Reply(ResponseCode.SYSTEM_ERROR, remark="was rolled back"))
    await ending.is_master()
    assert not ending.tasks and ending.seen() == [(0, False)]


async def test_what_was_sent_shortly_before_a_connection_ended_is_asked_again(ending):
    await ending.is_master()
    await ending.tell(1)
    await ending.clock.advance(module.RESEND_WINDOW_S)
    await ending.tell(2)
    await ending.tell(3)
    known = [(0, False), (1, True), (2, True), (3, True)]
    await ending.sees(*known)
    await ending.cut()
    await ending.sees(*known, (2, False), (3, False))


async def test_an_end_without_a_connection_is_asked_later(ending):
    ending.ends.resend_later("broker-a", [end(5)])
    ending.ends.resend_later("broker-a", [end(6)])
    await ending.sees((5, False), (6, False))
    assert len(ending.tasks) == 1


async def test_after_a_while_the_broker_is_left_to_ask(ending, caplog):
    ending.ends.resend_later("gone", [end(5)])
    await ending.clock.advance(module.ELECTION_LIMIT_S + 1)
    async with asyncio.timeout(5):
        while not ending.tasks[0].done():
            await ending.clock.advance(module.PAUSE_S)
            await asyncio.sleep(0.001)
    assert "cannot send 1 ends of transactions to gone" in caplog.text and not ending.ends._waiting_ends


async def test_a_broker_of_apache_gets_an_end_once(peer, ending):
    peer.usual[RequestCode.HEART_BEAT] = lambda _: Reply(header=HeartBeatReply())
    await ending.tell(0)
    await ending.sees((0, True))
    await ending.cut()
    assert not ending.tasks


async def test_a_client_that_is_left_asks_no_more(ending):
    await ending.is_master()
    ending.is_open = False
    await ending.cut()
    assert not ending.tasks and not ending.ends._waiting_ends
