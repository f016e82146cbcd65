import random

import pytest

from sparrowmq.store.layout import ENTRY
from sparrowmq.store.timer_wheel import RECALL, TimerWheel

NOW = 1_767_225_600_000
FILE = 1 << 20
DAY = 86_400_000


@pytest.fixture
def wheel():
    return TimerWheel(FILE)


def unpacked(entries):
    return [ENTRY.unpack_from(entries, at) for at in range(0, len(entries), ENTRY.size)]


def taken(wheel, now_ms):
    """Everything that is due, as (offset, due)."""
    found: list[tuple[int, int]] = []
    while True:
        while wheel.pour_next(now_ms):
            pass
        messages, recalls = wheel.take(now_ms)
        if not messages and not recalls:
            return found
        for offset, _size, due in unpacked(messages) + unpacked(recalls):
            wheel.settle(offset)
            found.append((offset, due))


@pytest.mark.parametrize("wait_ms", [0, 1, 15, 16, 4095, 4096, 70_000, 524_288, 3_600_000, 40 * DAY])
@pytest.mark.parametrize("start", [NOW, NOW + 7, NOW + 4095])
def test_a_timer_is_taken_within_16_ms_of_its_time_and_never_before(wheel, start, wait_ms):
    due = start + wait_ms
    wheel.add(5, 100, due)
    assert taken(wheel, due - 1) == []
    assert taken(wheel, due + 16) == [(5, due)]
    assert wheel.count == 0


def test_a_time_that_has_passed_is_due_now(wheel):
    wheel.add(1, 100, NOW - 10 * DAY)
    wheel.add(2, 100, 0)
    assert taken(wheel, NOW) == [(2, 0), (1, NOW - 10 * DAY)]


def test_timers_of_all_distances_come_in_their_order_however_time_goes_on(wheel):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    now, offset, expected, found = NOW, 0, [], []
    for _ in range(3000):
        if chance.random() < 0.6:
            due = now + int(10 ** chance.uniform(0, 8))
            wheel.add(offset, 100, due)
            expected.append((offset, due))
            offset += 100
        now += int(10 ** chance.uniform(0, 5))
        found += [(*each, now) for each in taken(wheel, now)]
    end = now + 11 * DAY
    found += [(*each, end) for each in taken(wheel, end)]
    assert sorted(found) == sorted(
        (*each, when) for each, when in zip(expected, map(when_of(found), expected), strict=True)
    )
    assert all(when > due for _, due, when in found)
    ticks = [due >> 4 for _, due, when in found if when == end]
    assert ticks == sorted(ticks)


def when_of(found):
    by_offset = {offset: when for offset, _, when in found}
    return lambda each: by_offset[each[0]]


def test_a_wait_ends_when_there_is_something_to_do(wheel):
    assert wheel.wait_ms(NOW) == 60_000
    wheel.add(1, 100, NOW + 30)
    while wheel.pour_next(NOW):
        pass
    assert 0 < wheel.wait_ms(NOW) <= 46
    assert taken(wheel, NOW + wheel.wait_ms(NOW)) == [(1, NOW + 30)]


def test_a_slot_of_many_is_poured_in_pieces(wheel):
    for offset in range(10_000):
        wheel.add(offset, 100, NOW + 3_600_000)
    assert wheel.pour_next(NOW + 3_600_000)
    rounds = 0
    while wheel.pour_next(NOW + 3_600_000):
        rounds += 1
        assert len(b"".join(wheel.slots())) == 10_000 * ENTRY.size, "the file would miss some"
    assert rounds >= 4
    assert len(taken(wheel, NOW + 3_600_016)) == 10_000


def test_recalls_are_taken_with_the_slot_of_their_message(wheel):
    due = NOW + 100_000
    wheel.add(1, 100, due)
    wheel.add(2, 50, due | RECALL)
    while wheel.pour_next(due + 16):
        pass
    messages, recalls = wheel.take(due + 16)
    assert unpacked(messages) == [(1, 100, due)] and unpacked(recalls) == [(2, 50, due | RECALL)]


def test_a_recall_whose_message_is_not_there_is_taken_alone(wheel):
    wheel.add(2, 50, NOW | RECALL)
    assert wheel.take(NOW + 16)[0] == b""
    assert taken(wheel, NOW + 16) == []
    wheel.add(3, 50, (NOW + 50) | RECALL)
    assert taken(wheel, NOW + 40) == []
    assert taken(wheel, NOW + 80) == [(3, (NOW + 50) | RECALL)]


def test_the_oldest_file_that_is_needed_is_known(wheel):
    assert wheel.oldest is None
    wheel.add(3 * FILE + 5, 100, NOW)
    wheel.add(FILE + 5, 100, NOW)
    wheel.add(FILE + 900, 100, NOW)
    assert wheel.oldest == FILE
    wheel.settle(FILE + 5)
    assert wheel.oldest == FILE
    wheel.settle(FILE + 900)
    assert wheel.oldest == 3 * FILE


def test_timers_of_old_files_can_be_taken_out(wheel):
    dues = [NOW + wait for wait in (1, 5000, 900_000, 30 * DAY)]
    for number, due in enumerate(dues):
        wheel.add(number, 100, due)
        wheel.add(FILE + number, 100, due)
    old = [each for piece in wheel.take_before(FILE) for each in unpacked(piece)]
    assert sorted(old) == [(number, 100, due) for number, due in enumerate(dues)]
    for offset, _, _ in old:
        wheel.settle(offset)
    assert wheel.oldest == FILE
    assert [offset for offset, _ in taken(wheel, NOW + 31 * DAY)] == [FILE, FILE + 1, FILE + 2, FILE + 3]


def test_a_clock_that_goes_back_lets_timers_wait_and_loses_none(wheel):
    wheel.add(1, 100, NOW + 100_000)
    while wheel.pour_next(NOW + 90_000):
        pass
    hour = 3_600_000
    wheel.add(2, 100, NOW - hour + 50)
    assert taken(wheel, NOW - hour) == []
    assert taken(wheel, NOW - hour + 80) == [(2, NOW - hour + 50)]
    assert taken(wheel, NOW + 100_016) == [(1, NOW + 100_000)]
