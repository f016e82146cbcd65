"""Plain pulls: which headers are recognised, and which messages a lane chooses and copies."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.kernel.cursor import In
from sparrowmq.kernel.headers import Header
from sparrowmq.kernel.pulls import CHOSEN, LACKS_ENTRIES, Pull, PullAnswers, PullLane, PullLanes, PullTaker, are_valid

NUMBERS = st.integers(0, 10**18 - 1)
GAP = 0x7FFFFFFF


def head(offset: Any, commit: Any, opaque: Any, others: dict[str, str] | None = None) -> bytes:
    fields = {"topic": "orders", "queueOffset": offset, "subscription": "a || b", "commitOffset": commit}
    return json.dumps(
        {"code": 11, "extFields": fields | (others or {}), "opaque": opaque}, separators=(",", ":")
    ).encode()


def find(lanes: PullLanes, raw: bytes) -> Pull | None:
    header, source = Header(), In(raw)
    return lanes.find(header, source, 0, len(raw)) if header.read(source, 0, len(raw)) else None


def lanes_for(header: bytes, lane: PullLane) -> PullLanes:
    lanes = PullLanes()
    lanes.is_open = True
    assert find(lanes, header) is None
    [shape] = lanes.unknown
    lanes.open(shape, lane)
    return lanes


def everything() -> PullLane:
    return PullLane(32, 1 << 20, 32, None)


@given(st.lists(NUMBERS, min_size=3, max_size=3), st.lists(NUMBERS, min_size=3, max_size=3))
def test_pulls_that_differ_in_their_numbers_take_one_lane(first, second):
    lanes = lanes_for(head(str(first[0]), str(first[1]), first[2]), everything())
    sent = head(str(second[0]), str(second[1]), second[2])
    pull = find(lanes, sent)
    assert pull is not None and pull.header == sent
    assert [pull.queue_offset, pull.commit_offset, pull.opaque] == second


@given(st.text(max_size=5), st.text(max_size=5))
def test_a_pull_that_differs_in_anything_else_takes_another(topic, name):
    first, second = head("1", "2", 3), head("1", "2", 3, {"topic": topic, name: "x"})
    lanes = lanes_for(first, everything())
    assert (find(lanes, second) is not None) == (first == second)


def test_a_number_that_is_missing_or_there_twice_takes_none():
    lanes = PullLanes()
    lanes.is_open = True
    plain = head("1", "2", 3).decode()
    for broken in (
        plain.replace('"queueOffset":"1",', ""),
        plain.replace('"queueOffset":"1"', '"queueOffset":"1","queueOffset":"1"'),
        plain.replace('"opaque":3', '"opaque":3,"opaque":3'),
        plain.replace('"opaque":3', '"opaque":"3"'),
        plain.replace('"queueOffset":"1"', '"queueOffset":1'),
        plain.replace('"queueOffset":"1"', '"queueOffset":"01"'),
        plain.replace('"queueOffset":"1"', '"queueOffset":"-1"'),
        plain.replace("orders", "\\u0041"),
        plain + " ",
    ):
        assert find(lanes, broken.encode()) is None
    assert not lanes.unknown


ENTRIES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 99) | st.just(GAP), st.integers(0, 3)), max_size=50)


@given(
    ENTRIES, st.integers(0, 20), st.integers(1, 9), st.integers(0, 400), st.none() | st.frozensets(st.integers(0, 3))
)
def test_a_lane_chooses_the_wanted_messages_within_its_limits(steps, offset, max_count, max_bytes, codes):
    places, end = [], 0
    for gap, size, code in steps:
        places.append((end + gap, size, code))
        end += gap + size if size != GAP else 0
    packed = b"".join(
        place.to_bytes(8, "big") + size.to_bytes(4, "big") + code.to_bytes(8, "big") for place, size, code in places
    )
    assert are_valid(packed)
    log = bytes(range(256)) * (end // 256 + 1)
    wanted: list[bytes] = []
    next_offset = offset
    for place, size, code in places[offset:]:
        if size != GAP and (codes is None or code in codes):
            if len(wanted) == max_count or (wanted and len(b"".join(wanted)) + size > max_bytes):
                break
            wanted.append(log[place : place + size])
        next_offset += 1
    lane = PullLane(max_count, max_bytes, 99, codes)
    header = head(str(offset), "0", 3)
    lanes = lanes_for(header, lane)
    assert lane.select(offset, offset + 1) == LACKS_ENTRIES
    lane.keep(0, packed)
    if lane.select(offset, max(offset, len(places))) != CHOSEN:
        assert not wanted
        return
    taker, answers = PullTaker(lanes), PullAnswers()
    plain, source = Header(), In(header)
    assert plain.read(source, 0, len(header)) and taker.take(plain, source, 0, len(header))
    answers.add(taker.taken_pulls[0], log[lane.begin : lane.end], 0, len(places))
    answer = answers.take()
    head_size = int.from_bytes(answer[4:8], "big")
    assert answer[8 + head_size :] == b"".join(wanted) and int.from_bytes(answer[:4], "big") == len(answer) - 4
    reply = json.loads(answer[8 : 8 + head_size])
    assert (lane.count, reply["opaque"]) == (len(wanted), 3)
    assert reply["extFields"]["nextBeginOffset"] == str(next_offset)
