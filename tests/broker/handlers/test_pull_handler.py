"""Pulling: codes and offsets, filters, limits, long polling."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.requests.admin_headers import (
    DeleteTopic,
    GetConsumeStats,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndCreateTopic,
)
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat, Heartbeat
from sparrowmq.protocol.requests.headers import GetMaxOffset, HeartBeat, PullMessage, QueryConsumerOffset
from sparrowmq.protocol.requests.offset_bodies import ConsumeStats
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.store.log.log_file import LogFile
from sparrowmq.store.queues import cold_reads
from sparrowmq.store.vfs import Disk, File
from sparrowmq.testing import ManualClock
from tests.broker.live import COMMIT, SUBSCRIPTION, SUSPEND, Live, decoded, live_broker, pull_request


async def fill(live: Live, count: int, tag: str = "t", size: int = 10) -> None:
    for number in range(count):
        await live.send(b"%d " % number + bytes(size), properties={"TAGS": tag})


@pytest.mark.parametrize(
    ("sent", "offset", "code", "next_offset", "remark"),
    [
        (3, 0, 0, 3, "FOUND"),
        (3, 2, 0, 3, "FOUND"),
        (3, 3, 19, 3, "OFFSET_OVERFLOW_ONE"),
        (3, 9, 21, 3, "OFFSET_OVERFLOW_BADLY"),
        (0, 0, 19, 0, None),
        (0, 5, 21, 0, None),
        (3, -1, 21, 0, "OFFSET_TOO_SMALL"),
    ],
)
async def test_codes_and_offsets_are_javas(
    tmp_path: Path, sent: int, offset: int, code: int, next_offset: int, remark: str | None
) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(queue_id=1)  # the topic
        await fill(live, sent)
        response = await live.pull(offset=offset)
    assert (response.code, response.header.next_begin_offset) == (code, next_offset)
    assert (response.header.min_offset, response.header.max_offset) == (0, sent)
    if remark:
        assert response.remark == remark


@pytest.mark.covers("S-CONS-10")
async def test_a_pull_brings_at_most_what_it_asks_for_and_at_most_32(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await fill(live, 50)
        assert [len(await live.messages(max_msg_nums=asked)) for asked in (1, 10, 32, 1000)] == [
            1,
            10,
            32,
            32,
        ]
        assert len(await live.messages(max_msg_nums=0)) == 1  # Go's pull consumer asks so and needs one.


async def test_a_pull_that_names_its_size_is_limited_by_size(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await fill(live, 300, size=100)
        everything = await live.pull(max_msg_nums=1000, max_msg_bytes=1 << 20)
        part = await live.pull(max_msg_nums=1000, max_msg_bytes=10_000)
    assert len(decoded(everything)) == 300
    assert 10 < len(decoded(part)) < 60
    assert len(part.body) <= 10_000


async def test_a_message_larger_than_the_limit_comes_alone(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(bytes(500_000))
        await live.send(b"next")
        assert [len(message.body) for message in await live.messages()] == [500_000]


@pytest.mark.covers("S-CONS-15")
async def test_only_the_wanted_tags_come_and_the_offset_passes_the_others(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        for tag in "abcab":
            await live.send(tag.encode(), properties={"TAGS": tag})
        both = await live.pull(subscription="a || c")
        none = await live.pull(subscription="z")
    assert [message.body for message in decoded(both)] == [b"a", b"c", b"a"]
    assert both.header.next_begin_offset == 5
    assert (none.code, none.header.next_begin_offset, none.remark) == (20, 5, "NO_MATCHED_MESSAGE")


async def test_a_pull_counts_for_the_pace_of_its_group(tmp_path: Path) -> None:
    clock = ManualClock()
    async with live_broker(tmp_path, clock) as live:
        await fill(live, 20)
        await live.messages()
        await live.messages(consumer_group="others", max_msg_nums=5)
        await clock.advance(seconds=10)
        answers = [
            await live.session.call(GetConsumeStats(group, "orders")) for group in ("consumers", "others", "nobody")
        ]
    assert [ConsumeStats.decode(answer.body).consume_tps for answer in answers] == [2.0, 0.5, 0.0]


async def test_a_held_poll_wakes_when_its_message_arrives(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(b"first")
        held = asyncio.ensure_future(
            live.pull(offset=1, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=20_000)
        )
        await live.send(b"other queue", queue_id=1)
        assert not held.done()
        await live.send(b"second")
        response = await asyncio.wait_for(held, 5)
    assert [message.body for message in decoded(response)] == [b"second"]


async def test_a_held_poll_does_not_wake_for_other_tags_but_passes_them(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(b"first")
        flags: dict[str, Any] = {
            "sys_flag": SUBSCRIPTION | SUSPEND,
            "suspend_timeout_millis": 300,
            "subscription": "want",
        }
        held = asyncio.ensure_future(live.pull(offset=1, **flags))
        await live.send(b"no", properties={"TAGS": "other"})
        response = await held
    assert (response.code, response.header.next_begin_offset) == (20, 2)


async def test_a_held_poll_on_a_queue_without_messages_wakes_too(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(queue_id=1)
        held = asyncio.ensure_future(live.pull(sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=20_000))
        await asyncio.sleep(0.02)
        await live.send(b"at last")
        assert [message.body for message in decoded(await asyncio.wait_for(held, 5))] == [b"at last"]


async def test_a_poll_that_is_held_while_its_topic_is_made_again_begins_with_the_first_message(
    tmp_path: Path,
) -> None:
    async with live_broker(tmp_path) as live:
        await fill(live, 3)
        held = asyncio.ensure_future(
            live.pull(offset=3, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=20_000)
        )
        await asyncio.sleep(0.02)
        await live.session.call(DeleteTopic("orders"))
        await live.session.call(UpdateAndCreateTopic("orders", 1, 1, perm=6))
        await fill(live, 5)
        response = await asyncio.wait_for(held, 5)
        assert (response.code, response.header.next_begin_offset) == (21, 0)
        assert len(decoded(await live.pull(offset=0))) == 5


async def test_a_held_poll_is_answered_not_found_when_its_time_is_over(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send()
        response = await live.pull(offset=1, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=50)
    assert (response.code, response.header.next_begin_offset) == (19, 1)


async def test_without_long_polling_a_poll_is_held_for_the_time_of_a_short_one(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"long_polling": False, "short_polling_ms": 40}
    async with live_broker(tmp_path, **settings) as live:
        await live.send()
        flags: dict[str, Any] = {"sys_flag": SUBSCRIPTION | SUSPEND, "suspend_timeout_millis": 60_000}
        response = await asyncio.wait_for(live.pull(offset=1, **flags), 10)
    assert (response.code, response.header.next_begin_offset) == (19, 1)


async def test_held_polls_do_not_block_their_connection(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send()
        held = [
            asyncio.ensure_future(live.pull(offset=1, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=20_000))
            for _ in range(200)
        ]
        assert len(await live.messages()) == 1
        await live.send(b"for all of them")
        responses = await asyncio.wait_for(asyncio.gather(*held), 5)
    assert {decoded(response)[0].body for response in responses} == {b"for all of them"}


async def test_a_pull_commits_the_offset_it_carries(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await fill(live, 5)
        await live.pull(offset=4, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=4)
        answer = await live.session.call(QueryConsumerOffset("consumers", "orders", 0))
    assert answer.header.offset == 4


REFUSED: list[tuple[PullMessage, int, str]] = [
    (pull_request("unknown"), 17, "not exist"),
    (pull_request(queue_id=4), 1, r"queueId\[4\] is illegal"),
    (pull_request(queue_id=-1), 1, "illegal"),
    (pull_request(consumer_group="a b"), 1, "letters, digits"),
    (pull_request(consumer_group=""), 1, "group"),
    (pull_request(subscription="||"), 23, "parse"),
    (pull_request(expression_type="SQL92", subscription="a > 1"), 1, "filter message by SQL92"),
    (pull_request(sys_flag=0), 24, "subscription not exist"),
]


@pytest.mark.parametrize(("request_header", "code", "words"), REFUSED)
async def test_what_cannot_be_pulled_is_refused(
    tmp_path: Path, request_header: PullMessage, code: int, words: str
) -> None:
    async with live_broker(tmp_path) as live:
        await live.send()
        with pytest.raises(RemoteError, match=words) as caught:
            await live.session.call(request_header)
        assert caught.value.code == code
        assert len(await live.messages()) == 1


async def refusal(live: Live, **fields: Any) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        await live.session.call(pull_request(**fields))
    return caught.value


async def beat(live: Live, model: str = "CLUSTERING", version: int = 5) -> None:
    """The heartbeat of a consumer of "orders"."""
    group = ConsumerBeat(
        "consumers",
        message_model=model,
        subscription_data_set=[Subscription.build("orders", version=version)],
    )
    await live.session.call(HeartBeat(), Heartbeat("c@1", consumer_data_set=[group]).encode())


async def set_group(live: Live, **fields: Any) -> None:
    config = GroupConfig("consumers", **fields)
    await live.session.call(UpdateAndCreateSubscriptionGroup(), config.encode())


async def test_a_broker_that_may_only_be_written_refuses_every_pull(tmp_path: Path) -> None:
    async with live_broker(tmp_path, permission=2) as live:
        await live.send()
        error = await refusal(live)
    assert (error.code, error.remark) == (
        16,
        f"the broker[{live.broker.settings.name}] pulling message is forbidden: its brokerPermission is 2",
    )


async def test_a_topic_without_read_permission_is_not_pulled(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send()
        await live.session.call(UpdateAndCreateTopic("orders", 4, 4, perm=2))
        error = await refusal(live)
    assert error.code == 16 and "the topic[orders] pulling message is forbidden" in error.remark


async def test_a_group_that_may_not_consume_is_refused(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send()
        await set_group(live, consume_enable=False)
        error = await refusal(live)
        assert (error.code, error.remark) == (16, "subscription group no permission, consumers")
        await set_group(live)
        assert len(await live.messages()) == 1


@pytest.mark.parametrize("flags", [0, SUBSCRIPTION])
async def test_a_group_that_may_not_broadcast_is_refused_if_it_does(tmp_path: Path, flags: int) -> None:
    async with live_broker(tmp_path) as live:
        await live.send()
        await set_group(live, consume_broadcast_enable=False)
        await beat(live, "BROADCASTING")
        error = await refusal(live, sys_flag=flags)
        assert (error.code, error.remark) == (
            16,
            "the consumer group[consumers] can not consume by broadcast way",
        )
        await beat(live, "CLUSTERING")
        assert len(await live.messages(sys_flag=flags)) == 1
        await set_group(live)
        await beat(live, "BROADCASTING")
        assert len(await live.messages(sys_flag=flags)) == 1


async def test_a_pull_waits_for_the_heartbeat_that_its_subscription_is_of(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send()
        await beat(live, version=5)
        error = await refusal(live, sys_flag=0, sub_version=6)
        assert error.code == 25 and "the consumer's subscription not latest" in error.remark
        assert len(await live.messages(sys_flag=0, sub_version=5)) == 1
        await beat(live, version=6)
        assert len(await live.messages(sys_flag=0, sub_version=6)) == 1


# SQL92


async def fill_amounts(live: Live, count: int, topic: str = "orders") -> None:
    for number in range(count):
        await live.send(b"%d" % number, topic, properties={"amount": str(number)})


async def subscribe_by(live: Live, expression: str, version: int = 5) -> None:
    """The heartbeat of a consumer of "orders" by an SQL92 expression."""
    subscription = Subscription.build("orders", expression, "SQL92", version)
    group = ConsumerBeat("consumers", subscription_data_set=[subscription])
    await live.session.call(HeartBeat(), Heartbeat("c@1", consumer_data_set=[group]).encode())


def bodies(messages: list[StoredMessage]) -> list[int]:
    return [int(message.body) for message in messages]


async def test_a_pull_brings_what_its_own_expression_wants(tmp_path: Path) -> None:
    async with live_broker(tmp_path, property_filter=True) as live:
        await fill_amounts(live, 9)
        wanted = await live.messages(expression_type="SQL92", subscription="amount BETWEEN 3 AND 5")
        assert bodies(wanted) == [3, 4, 5]
        by_tag = await live.messages(expression_type="TAG", subscription="*")
        assert len(by_tag) == 9


async def test_a_pull_brings_what_the_heartbeats_expression_wants(tmp_path: Path) -> None:
    async with live_broker(tmp_path, property_filter=True) as live:
        await fill_amounts(live, 9)
        await subscribe_by(live, "amount > 6")
        assert bodies(await live.messages(sys_flag=0)) == [7, 8]
        await subscribe_by(live, "amount < 2", version=6)
        assert bodies(await live.messages(sys_flag=0)) == [0, 1]


async def test_where_nothing_matches_the_pull_moves_on(tmp_path: Path) -> None:
    async with live_broker(tmp_path, property_filter=True) as live:
        await fill_amounts(live, 9)
        answer = await live.pull(expression_type="SQL92", subscription="amount > 100", offset=2)
    assert (answer.code, answer.header.next_begin_offset) == (20, 9)


async def test_a_held_pull_waits_for_what_the_expression_wants(tmp_path: Path) -> None:
    async with live_broker(tmp_path, property_filter=True) as live:
        await fill_amounts(live, 1)
        held = asyncio.ensure_future(
            live.pull(
                offset=1,
                sys_flag=SUBSCRIPTION | SUSPEND,
                suspend_timeout_millis=20_000,
                expression_type="SQL92",
                subscription="amount = 'last'",
            )
        )
        await fill_amounts(live, 5)
        assert not held.done()
        await live.send(b"9", properties={"amount": "last"})
        assert bodies(decoded(await held)) == [9]


async def test_a_bad_expression_is_refused_with_its_place_however_it_came(tmp_path: Path) -> None:
    async with live_broker(tmp_path, property_filter=True) as live:
        await live.send()
        await subscribe_by(live, "amount > > 5")
        for error in (
            await refusal(live, sys_flag=0),
            await refusal(live, expression_type="SQL92", subscription="amount > > 5"),
        ):
            assert error.code == 23
            assert "parse the consumer's subscription failed: line 1, column 10, before '> 5'" in error.remark


async def test_a_heartbeat_by_sql_is_refused_at_its_pull_where_that_is_not_allowed(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send()
        await subscribe_by(live, "amount > 5")
        error = await refusal(live, sys_flag=0)
    assert (error.code, error.remark) == (
        1,
        "The broker does not support consumer to filter message by SQL92",
    )


async def test_what_comes_again_is_not_filtered_again(tmp_path: Path) -> None:
    """Its retry topic has a subscription of its own, by every tag."""
    async with live_broker(tmp_path, property_filter=True) as live:
        subscriptions = [
            Subscription.build("orders", "amount > 6", "SQL92"),
            Subscription.build("%RETRY%consumers"),
        ]
        group = ConsumerBeat("consumers", subscription_data_set=subscriptions)
        await live.session.call(HeartBeat(), Heartbeat("c@1", consumer_data_set=[group]).encode())
        await fill_amounts(live, 3, "%RETRY%consumers")
        assert bodies(await live.messages("%RETRY%consumers", sys_flag=0)) == [0, 1, 2]


# Which broker next --------------------------------------------------------------------------------------------------


async def whom_next(live: Live, offset: int = 0, **fields: Any) -> int:
    return (await live.pull(offset=offset, **fields)).header.suggest_which_broker_id


async def test_who_reads_what_is_no_longer_in_memory_is_sent_where_its_group_says(tmp_path: Path) -> None:
    async with live_broker(tmp_path, slave_reads=True, memory_percent=0) as live:
        await fill(live, 3)
        assert await whom_next(live) == 1  # the default of a group's whichBrokerWhenConsumeSlowly
        await set_group(live, which_broker_when_consume_slowly=2)
        assert await whom_next(live) == 2
        assert await whom_next(live, offset=3) == 0  # It has read all: whatever lies behind it, it is not far.


@pytest.mark.parametrize("given", [{"slave_reads": True}, {"memory_percent": 0}])
async def test_who_reads_what_is_in_memory_stays_and_so_does_everybody_without_slavereadenable(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    async with live_broker(tmp_path, **given) as live:
        await fill(live, 3)
        assert await whom_next(live) == 0


SLAVE: dict[str, Any] = {"role": BrokerRole.SLAVE, "broker_id": 1}


async def test_a_slave_that_does_not_serve_reads_sends_everybody_to_its_master_after_a_second(
    tmp_path: Path,
) -> None:
    async with live_broker(tmp_path) as live:
        await fill(live, 3)
    clock = ManualClock()
    async with live_broker(tmp_path, clock, **SLAVE) as live:
        await sent_away(live, clock, offset=2)
    async with live_broker(tmp_path, slave_reads=True, **SLAVE) as live:
        assert len(await live.messages()) == 3


async def test_a_slave_sends_a_client_that_is_further_to_its_master_and_not_back(tmp_path: Path) -> None:
    """As Java's slaves do, because the messages between are on their way to the slave, or lost there."""
    async with live_broker(tmp_path) as live:
        await fill(live, 3)
    clock = ManualClock()
    async with live_broker(tmp_path, clock, slave_reads=True, **SLAVE) as live:
        await sent_away(live, clock, offset=5)


async def sent_away(live: Live, clock: ManualClock, offset: int) -> None:
    pulling = asyncio.ensure_future(live.pull(offset=offset))
    await clock.advance(0.9)
    assert not pulling.done()
    await clock.advance(0.2)
    answer = await pulling
    assert (answer.code, answer.header.suggest_which_broker_id, answer.body) == (20, 0, b"")
    assert answer.header.next_begin_offset == offset, "a client goes on there"


async def test_a_pull_at_a_slave_commits_nothing(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await fill(live, 3)
    async with live_broker(tmp_path, role=BrokerRole.SLAVE, broker_id=1, slave_reads=True) as live:
        await live.pull(sys_flag=SUBSCRIPTION | COMMIT, commit_offset=2)
        asked = QueryConsumerOffset("consumers", "orders", 0, set_zero_if_not_found=False)
        with pytest.raises(RemoteError, match="Not found"):
            await live.session.call(asked)


async def test_cold_messages_are_read_in_a_thread_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop reads them after that, from the system's cache, so other clients do not wait for the disk."""
    readers: list[tuple[str, threading.Thread]] = []
    real_read = Disk.read

    def read(disk: Disk, file: File, offset: int, size: int) -> bytes:
        readers.append((Path(file.path).parent.name, threading.current_thread()))
        return real_read(disk, file, offset, size)

    def is_cached(disk: Disk, file: File, offset: int) -> bool:
        return any(folder == "commitlog" and thread is not loop for folder, thread in readers)

    loop = threading.current_thread()
    monkeypatch.setattr(cold_reads, "NEAR", 2)
    async with live_broker(tmp_path) as live:
        await fill(live, 6)
        monkeypatch.setattr(Disk, "read", read)
        monkeypatch.setattr(Disk, "is_cached", is_cached)
        assert len(decoded(await live.pull(offset=0))) == 6
        log_readers = [thread for folder, thread in readers if folder == "commitlog"]
        assert loop not in log_readers[:6] and loop in log_readers
        readers.clear()
        assert len(decoded(await live.pull(offset=4))) == 2
        assert {thread for _, thread in readers} == {loop}, "near the end of the queue there is no check"


async def test_messages_that_stay_cold_are_read_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_reads, "NEAR", 0)
    monkeypatch.setattr(Disk, "is_cached", lambda disk, file, offset: False)
    async with live_broker(tmp_path) as live:
        await fill(live, 3)
        monkeypatch.setattr(LogFile, "cache", lambda file, position, size: None)
        assert len(decoded(await live.pull(offset=0))) == 3


async def test_a_pull_reads_no_other_topic_of_the_name(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(b"old")
        ask = GetMaxOffset("orders", 0, with_incarnation=True)
        old = (await live.session.call(ask)).header.incarnation
        assert [each.body for each in await live.messages(incarnation=old)] == [b"old"]
        await live.session.call(DeleteTopic("orders"))
        await live.send(b"new")
        assert [each.body for each in await live.messages()] == [b"new"]
        with pytest.raises(RemoteError, match="it was deleted, and another one of its name was made") as refusal:
            await live.messages(incarnation=old)
        assert refusal.value.code == 17
