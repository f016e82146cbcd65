"""Room for unfinished frames and for answers that nobody reads, shared by all peers."""

from dataclasses import dataclass

import pytest

from sparrowmq.remoting.budget import READ_BYTES, Budget, BudgetLimits
from sparrowmq.testing.clock import ManualClock

MB = 1 << 20
CHUNK = 200_000


@dataclass(eq=False)
class Peer:
    """A connection; the tests say what has come of its frame."""

    address: str = "peer"
    pending_bytes: int = CHUNK
    sent_bytes: int = 0
    unread_bytes: int = 0
    unhandled_bytes: int = 0
    ended: bool = False
    may_read: bool = False

    def abort(self) -> None:
        self.ended = True

    def on_room(self) -> None:
        self.may_read = True


def answered(peer: Peer, size: int) -> Peer:
    """The peer, with an answer that waits for it."""
    peer.sent_bytes += size
    peer.unread_bytes += size
    return peer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def budget(clock: ManualClock) -> Budget:
    return Budget(clock, BudgetLimits(frame_bytes=64 * MB, unread_bytes=10 * MB, turn_bytes=4 * MB))


def test_frames_get_room_for_all_of_them_until_it_is_gone(budget: Budget) -> None:
    peers = [Peer() for _ in range(8)]
    assert [budget.room_for(peer, 15 * MB) for peer in peers] == [True] * 4 + [False] * 4
    assert budget.room_for(peers[0], 15 * MB), "it has room already"
    budget.free_frame(peers[0])
    assert [peer.may_read for peer in peers[4:]] == [True, False, False, False]
    assert budget.room_for(peers[4], 15 * MB)


def test_a_frame_that_fits_need_not_wait_for_a_larger_one(budget: Budget) -> None:
    for _ in range(4):
        budget.room_for(Peer(), 15 * MB)
    large, small = Peer(), Peer()
    assert not budget.room_for(large, 15 * MB)
    assert budget.room_for(small, 2 * MB) and not large.may_read


def test_a_frame_larger_than_all_the_room_comes_alone(budget: Budget) -> None:
    assert budget.room_for(Peer(), 100 * MB)
    assert not budget.room_for(Peer(), MB)


def test_another_size_is_the_next_frame(budget: Budget) -> None:
    first, second = Peer(), Peer()
    assert budget.room_for(first, 60 * MB) and not budget.room_for(second, 10 * MB)
    assert budget.room_for(first, 20 * MB)
    assert second.may_read


def test_who_leaves_the_queue_is_given_nothing(budget: Budget) -> None:
    holder, gone, next_one = Peer(), Peer(), Peer()
    assert budget.room_for(holder, 60 * MB)
    assert not budget.room_for(gone, 10 * MB) and not budget.room_for(next_one, 60 * MB)
    budget.free_frame(gone)
    budget.free_frame(holder)
    assert next_one.may_read and not gone.may_read


async def test_a_slow_frame_ends_only_while_others_wait(budget: Budget, clock: ManualClock) -> None:
    slow, fast = Peer(), Peer()
    assert budget.room_for(slow, 30 * MB) and budget.room_for(fast, 30 * MB)
    await clock.advance(10)
    assert not slow.ended
    waits = Peer()
    assert not budget.room_for(waits, 15 * MB)
    fast.pending_bytes += 11 * 256 * 1024
    await clock.advance(1)
    assert slow.ended and not fast.ended
    budget.free_frame(slow)
    assert waits.may_read
    fast.pending_bytes = CHUNK
    await clock.advance(60)
    assert not fast.ended, "nobody waits any more"


async def test_a_frame_that_has_just_got_room_has_a_second(budget: Budget, clock: ManualClock) -> None:
    first, second, third = Peer(), Peer(), Peer()
    assert budget.room_for(first, 60 * MB)
    assert not budget.room_for(second, 60 * MB) and not budget.room_for(third, 60 * MB)
    await clock.advance(0.9)
    budget.free_frame(first)
    await clock.advance(0.9)
    assert second.may_read and not second.ended
    await clock.advance(1.2)
    assert second.ended


def test_what_waits_for_room_is_limited_too(budget: Budget) -> None:
    peers = [Peer(pending_bytes=16 * MB) for _ in range(10)]
    for peer in peers:
        budget.room_for(peer, 60 * MB)
    assert [peer.ended for peer in peers] == [False] * 5 + [True] * 5


def test_when_too_many_do_not_read_the_one_ends_that_has_not_for_longest(budget: Budget) -> None:
    peers = [answered(Peer(), MB) for _ in range(12)]
    for peer in peers[:10]:
        budget.add_unread(peer)
    assert not any(peer.ended for peer in peers)
    budget.remove_unread(peers[0])
    budget.add_unread(peers[10])
    assert not any(peer.ended for peer in peers)
    budget.add_unread(peers[1])  # more, but not sooner
    budget.add_unread(peers[11])
    assert [number for number, peer in enumerate(peers) if peer.ended] == [1]


def test_a_peer_that_reads_as_more_answers_come_is_not_ended(budget: Budget) -> None:
    peers = [answered(Peer(), MB) for _ in range(12)]
    reader = peers[0]
    for peer in peers[:10]:
        budget.add_unread(peer)
    answered(reader, READ_BYTES)  # and it has taken as much before
    reader.unread_bytes = MB
    budget.add_unread(reader)
    for peer in peers[10:]:
        budget.add_unread(peer)
    assert [number for number, peer in enumerate(peers) if peer.ended] == [1, 2]


def test_peers_that_read_all_the_time_hold_no_more_than_the_others(budget: Budget) -> None:
    peers = [answered(Peer(), MB) for _ in range(300)]
    for peer in peers:
        budget.add_unread(peer)
        for reader in peers:
            reader.sent_bytes += READ_BYTES
    assert sum(not peer.ended for peer in peers) == 10


def test_one_alone_may_hold_more_than_all_should(budget: Budget) -> None:
    peer = answered(Peer(), 50 * MB)
    budget.add_unread(peer)
    assert not peer.ended
