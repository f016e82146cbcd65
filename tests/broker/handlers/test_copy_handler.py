"""Copies: stored in order, none twice, each with its own born time; asked of a whole broker."""

import asyncio

import pytest

from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.broker.handlers import batch_handler
from sparrowmq.errors import RemoteError
from sparrowmq.loop import slices
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import copied_batch
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.copied_batch import Copy
from sparrowmq.protocol.requests.admin_headers import DeleteTopic, UpdateAndCreateTopic
from sparrowmq.protocol.requests.headers import CopyBatch, GetMinOffset
from tests.broker.live import live_broker
from tests.broker.replication.slaves import slave_at

BORN_MS = 1_700_000_000_000


def body(*offsets, properties="", size=0):
    return copied_batch.encode(
        [
            Copy(
                BORN_MS + offset,
                0,
                BatchPart(b"%d" % offset + bytes(size), f"UNIQ_KEY\x01id-{offset}\x02{properties}".encode()),
            )
            for offset in offsets
        ]
    )


async def copy(live, first, end, source="m/orders:0:", topic="orders", queue_id=0, **given):
    header = CopyBatch(topic, queue_id, source, given.pop("follows", first), end, given.pop("begins", None))
    answer = await live.session.call(header, given.pop("content", body(*range(first, end))))
    return answer.header.stored, answer.header.reached


async def bodies(live, queue_id=0):
    return [int(each.body) for each in await live.messages(queue_id=queue_id)]


@pytest.fixture
async def live(tmp_path):
    async with live_broker(tmp_path) as live:
        await live.session.call(UpdateAndCreateTopic("orders", 4, 4, 6))
        yield live


async def test_copies_are_stored_only_behind_those_before_them(live):
    assert await copy(live, 0, 3) == (False, -1), "the broker does not know what is there"
    assert await copy(live, 0, 3, begins=True) == (True, 3)
    assert await copy(live, 3, 5) == (True, 5)
    assert await copy(live, 3, 5) == (False, 5)
    assert await copy(live, 3, 5, begins=True) == (False, 5), "the broker knows better than a copier that looks"
    assert await copy(live, 7, 9) == (False, 5)
    assert await copy(live, 7, 9, follows=5) == (True, 9), "the source may have gaps"
    assert await bodies(live) == [0, 1, 2, 3, 4, 7, 8]


async def test_where_copies_end_is_told_once_they_are_safe(tmp_path):
    async with live_broker(tmp_path, role=BrokerRole.SYNC_MASTER, slave_timeout_ms=100) as live:
        await live.session.call(UpdateAndCreateTopic("orders", 4, 4, 6))
        async with slave_at(live.broker.ha_address) as slave:
            slave.report(0)
            await slave.piece()
            assert await copy(live, 0, 3) == (False, -1)
            for begins in (True, False):
                with pytest.raises(RemoteError) as late:
                    await copy(live, 0, 3, begins=begins)
                assert late.value.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            slave.report(live.broker.store.end)
            assert await copy(live, 0, 3) == (False, 3)


async def test_copies_that_do_not_fit_into_a_file_of_the_log_are_stored_in_parts(tmp_path):
    async with live_broker(tmp_path, commit_log_file_bytes=65536) as live:
        await live.session.call(UpdateAndCreateTopic("orders", 4, 4, 6))
        content = body(*range(30), size=5000)
        assert await copy(live, 0, 30, begins=True, content=content) == (True, 30)
        found = await live.messages()
        assert [int(each.body.rstrip(b"\0")) for each in found] == list(range(30))
        assert [each.unique_key for each in found] == [f"id-{number}" for number in range(30)]
        too_large = body(30, 31, size=70_000)
        with pytest.raises(RemoteError, match="mappedFileSizeCommitLog"):
            await copy(live, 30, 32, content=too_large)
        assert await copy(live, 30, 32) == (False, -1), "a part may be stored, so the copier has to look"


async def test_many_copies_are_stored_in_slices_and_requests_one_after_another(live, monkeypatch):
    monkeypatch.setattr(batch_handler, "PART_OF_ENTRIES", 4)
    monkeypatch.setattr(slices, "SLICE_S", 1e-6)
    answered = []

    async def do(name, asked):
        answered.append((name, await asked))

    async with asyncio.TaskGroup() as group:
        group.create_task(do("first", copy(live, 0, 16, begins=True)))
        group.create_task(do("second", copy(live, 16, 32)))
        group.create_task(do("short", live.session.call(GetMinOffset("orders", 0))))
    assert [name for name, _ in answered] == ["short", "first", "second"]
    assert [found for name, found in answered if name != "short"] == [(True, 16), (True, 32)]
    assert await bodies(live) == list(range(32))


async def test_each_copy_has_its_own_born_time(live):
    await copy(live, 0, 3, begins=True)
    found = await live.messages()
    assert [each.born_timestamp_ms for each in found] == [BORN_MS, BORN_MS + 1, BORN_MS + 2]
    assert [each.unique_key for each in found] == ["id-0", "id-1", "id-2"]


async def test_sources_queues_and_topics_of_one_name_are_apart(live):
    await copy(live, 0, 3, begins=True)
    assert await copy(live, 0, 3, source="m/orders:1:", begins=True) == (True, 3)
    assert await copy(live, 0, 3, queue_id=1, begins=True) == (True, 3)
    await live.session.call(DeleteTopic("orders"))
    await live.session.call(UpdateAndCreateTopic("orders", 4, 4, 6))
    assert await copy(live, 3, 5) == (False, -1)
    assert await copy(live, 0, 3, begins=True) == (True, 3)
    assert await bodies(live) == [0, 1, 2]


async def test_the_source_that_waited_longest_is_forgotten(live, monkeypatch):
    monkeypatch.setattr(batch_handler, "MAX_SOURCES", 2)
    for source, first in (("a", 0), ("b", 0), ("a", 1), ("c", 0)):
        assert (await copy(live, first, first + 1, source=source, begins=True))[0]
    assert await copy(live, 1, 2, source="b") == (False, -1)
    assert await copy(live, 2, 3, source="a") == (True, 3)
    assert await copy(live, 1, 2, source="c") == (True, 2)


@pytest.mark.parametrize(
    ("given", "code", "what"),
    [
        ({"topic": "rmq_sys_STAGED"}, ResponseCode.NO_PERMISSION, "forbidden"),
        ({"topic": "absent"}, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
        ({"topic": "%RETRY%g"}, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
        ({"queue_id": 4}, ResponseCode.SYSTEM_ERROR, r"queueId\[4\] is illegal"),
        ({"source": "x" * 513}, ResponseCode.MESSAGE_ILLEGAL, "at most 512 characters"),
        ({"follows": 3}, ResponseCode.MESSAGE_ILLEGAL, "rising offsets, not 3 to 3"),
        ({"follows": -1}, ResponseCode.MESSAGE_ILLEGAL, "rising offsets, not -1 to 3"),
        ({"content": b"nonsense"}, ResponseCode.SYSTEM_ERROR, "cannot hold"),
        (
            {"content": body(0, properties="TRAN_MSG\x01true\x02")},
            ResponseCode.MESSAGE_ILLEGAL,
            "cannot belong to a transaction",
        ),
        ({"content": body(0, properties="DELAY\x013\x02")}, ResponseCode.MESSAGE_ILLEGAL, "DELAY"),
        ({"content": body(0, size=4 << 20)}, ResponseCode.MESSAGE_ILLEGAL, "this broker's maxMessageSize is"),
        (
            {"content": body(0, 1, 2, size=2 << 20)},
            ResponseCode.MESSAGE_ILLEGAL,
            "this broker's maxMessageSize is",
        ),
    ],
)
async def test_what_cannot_be_is_refused_by_name(live, given, code, what):
    with pytest.raises(RemoteError, match=what) as refusal:
        await copy(live, 0, 3, begins=True, **given)
    assert refusal.value.code == code
    assert await bodies(live) == []
    assert await copy(live, 0, 3, begins=True) == (True, 3)


async def test_a_message_may_be_as_large_as_a_single_one(live):
    assert (await copy(live, 0, 1, begins=True, content=body(0, size=(4 << 20) - 1)))[0]
