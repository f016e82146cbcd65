"""Long polling over a real store, with time in the test's hands."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparrowmq.broker.held_pulls import HeldLimits, HeldPull, HeldPulls
from sparrowmq.broker.sql_filters import RecordFilter
from sparrowmq.errors import RemoteError
from sparrowmq.filter.grammar import parse
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import hosts
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.selector import ALL, Selector
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.handler import PendingRequest, Reply
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.remoting.server_session import ServerSession
from sparrowmq.remoting.session import Session
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.queue_reading import Read, Status
from sparrowmq.store.store_settings import Flush, StoreSettings
from sparrowmq.testing import ManualClock
from tests.broker.live import pull_request

HOST = hosts.pack("127.0.0.1:1")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    settings = StoreSettings(tmp_path, commit_log_file_size=1 << 20, flush=Flush.ASYNC, index=False)
    with MessageStore.open(settings) as opened:
        yield opened


def put(store: MessageStore, tags_code: int = 0, tag: str | None = None) -> None:
    entry = Entry("t", 0, b"body", Properties(f"TAGS\x01{tag}" if tag else ""), 1, HOST)
    entry.deliver_at_ms = tags_code
    store.append(entry)
    store.publish()


class Peer:
    """A connection that the test ends."""

    closed = False

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], object]] = []

    def on_end(self, callback: Callable[[Any], object]) -> None:
        self.callbacks.append(callback)

    def end(self) -> None:
        for callback in self.callbacks:
            callback(self)


def held_pulls(
    store: MessageStore, clock: ManualClock, limits: HeldLimits | None = None, reads: list[int] | None = None
) -> HeldPulls:
    def serve(held: HeldPull, is_over: bool) -> Reply | None:
        if reads is not None:
            reads.append(held.next_offset)
        assert held.selector is not None
        found = store.read("t", 0, held.next_offset, 32, 1 << 20, held.selector)
        if is_over or found.status in (Status.FOUND, Status.MESSAGE_WAS_REMOVING):
            return Reply(body=found)  # type: ignore[arg-type]
        held.next_offset = max(held.next_offset, found.next_offset)
        return None

    return HeldPulls(clock, serve, Quotas(clock), limits)


def hold(
    pulls: HeldPulls,
    store: MessageStore,
    selector: Selector = ALL,
    peer: Any = None,
    timeout_s: float = 15,
    session: Session | None = None,
) -> asyncio.Future[Read]:
    waiting: asyncio.Future[Read] = asyncio.get_running_loop().create_future()

    def on_answer(answer: Any, error: Exception | None) -> None:
        if error is None:
            waiting.set_result(answer.body)
        else:
            waiting.set_exception(error)

    header, peer = pull_request("t"), peer or Peer()
    end = store.queues.obtain("t", 0).end
    held = pulls.hold(HeldPull(header, selector, peer), end, timeout_s)
    session = session or cast(Session, SimpleNamespace(is_full=False))
    held.request = PendingRequest(session, Command(11), lambda: None, None, on_answer)
    return waiting


def wait(store: MessageStore, clock: ManualClock, selector: Selector = ALL) -> asyncio.Future[Read]:
    return hold(held_pulls(store, clock), store, selector)


async def test_what_comes_is_answered_when_it_comes(store: MessageStore) -> None:
    clock = ManualClock()
    waiting = wait(store, clock)
    await clock.advance(14)
    assert not waiting.done()
    put(store)
    assert (await waiting).count == 1


async def test_nothing_in_time_is_answered_with_nothing(store: MessageStore) -> None:
    clock = ManualClock()
    waiting = wait(store, clock)
    await clock.advance(15)
    assert (await waiting).count == 0
    assert store.queues.obtain("t", 0).end.waiting == 0


async def test_messages_with_other_tags_are_passed_while_waiting(store: MessageStore) -> None:
    clock = ManualClock()
    waiting = wait(store, clock, Selector(frozenset({7})))
    await clock.advance(1)
    for _ in range(3):
        put(store, 5)
        await clock.advance(1)
    assert not waiting.done()
    put(store, 7)
    found = await waiting
    assert (found.status, found.next_offset, found.count) == (Status.FOUND, 4, 1)


async def test_messages_whose_records_are_not_wanted_are_passed_while_waiting(store: MessageStore) -> None:
    clock = ManualClock()
    wanted = RecordFilter(parse("TAGS = 'yes'"))
    waiting = wait(store, clock, Selector(predicate=wanted))
    await clock.advance(1)
    for _ in range(2):
        put(store, tag="no")
        await clock.advance(1)
    assert not waiting.done()
    put(store, tag="yes")
    assert (await waiting).next_offset == 3


async def test_the_pulls_of_an_ended_connection_are_forgotten(store: MessageStore) -> None:
    clock, peer = ManualClock(), Peer()
    pulls = held_pulls(store, clock)
    waiting = [hold(pulls, store, peer=peer) for _ in range(3)]
    other = hold(pulls, store)
    assert (pulls.count, len(peer.callbacks)) == (4, 1)
    peer.end()
    await clock.advance()
    assert pulls.count == 1
    put(store)
    assert (await other).count == 1
    assert not any(each.done() for each in waiting)
    assert store.queues.obtain("t", 0).end.waiting == 0
    assert (pulls.count, pulls._lines, list(map(len, pulls._wheel._pulls.values()))) == (0, {}, [0])


async def test_pulls_above_a_limit_are_refused_so_that_clients_pause(store: MessageStore) -> None:
    clock, peer = ManualClock(), Peer()
    pulls = held_pulls(store, clock, HeldLimits(5, 2))
    for _ in range(2):
        hold(pulls, store, peer=peer)
    with pytest.raises(RemoteError, match=r"2 of this connection .maxHeldPullsPerConnection is 2") as refused:
        hold(pulls, store, peer=peer)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    for _ in range(3):
        hold(pulls, store)
    with pytest.raises(RemoteError, match=r"5 of all .maxHeldPulls is 5"):
        hold(pulls, store)
    figures = Figures()
    pulls.declare_figures(figures)
    assert figures.value("sparrowmq_held_pulls") == 5
    assert figures.value("sparrowmq_held_pulls_refused_total") == 2


async def test_many_pulls_wake_in_slices_and_lines_take_turns(store: MessageStore) -> None:
    clock, reads = ManualClock(), list[int]()
    pulls = held_pulls(store, clock, reads=reads)
    waiting = [hold(pulls, store) for _ in range(5000)]
    put(store)
    turns = 0
    while not all(each.done() for each in waiting):
        before = len(reads)
        await asyncio.sleep(0)
        turns += 1
        assert len(reads) - before < 5000, "not all in one turn"
    assert turns > 2
    assert len(reads) == 5000
    assert {each.result().count for each in waiting} == {1}


async def test_a_pull_waits_while_its_connection_has_unsent_answers(store: MessageStore) -> None:
    clock = ManualClock()
    session = ServerSession(lambda session, command: None, clock)
    session._out_bytes = 1 << 30
    reads: list[int] = []
    pulls = held_pulls(store, clock, reads=reads)
    waiting = hold(pulls, store, session=session)
    put(store)
    await clock.advance(20)
    assert reads == []
    session._out_bytes = 0
    await clock.advance(1)
    assert (await waiting).count == 1


async def test_time_limits_are_kept_to_a_tenth_of_a_second(store: MessageStore) -> None:
    clock = ManualClock()
    pulls = held_pulls(store, clock)
    short, long = hold(pulls, store, timeout_s=0.25), hold(pulls, store, timeout_s=2)
    sooner = hold(pulls, store, timeout_s=0.05)
    await clock.advance(0.1)
    assert [sooner.done(), short.done()] == [True, False]
    await clock.advance(0.2)
    assert [short.done(), long.done()] == [True, False]
    await clock.advance(2)
    assert long.done()


async def test_a_read_that_stopped_after_much_work_continues_without_another_message(
    store: MessageStore,
) -> None:
    clock = ManualClock()
    waiting = wait(store, clock, Selector(predicate=RecordFilter(parse("TAGS = 'b'")), weight=800))
    await clock.advance(1)
    for tag in "aaaaaaab":
        entry = Entry("t", 0, b"body", Properties(f"TAGS\x01{tag}"), 1, HOST)
        store.append(entry)
    store.publish()
    await clock.advance(1)
    assert (await waiting).next_offset == 8
