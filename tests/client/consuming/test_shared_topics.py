"""Pull consumers of a cluster: they share the queues of topics, lose some, and commit what was handled."""

import asyncio

import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import ConfigError
from sparrowmq.testing import Cluster
from tests.client.conftest import until


@pytest.mark.slow
async def test_a_subscribed_topic_may_lose_queues(tmp_path):
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("t", queues=2)
        async with mq.pull_consumer(group="g", start="earliest") as reader:
            await reader.subscribe("t")
            await mq.send("t", b"before")
            assert [each.body for each in await reader.poll()] == [b"before"]
            await mq.admin.change_topic("t", queues=1, hide_unread=True)
            await mq.send("t", b"after", queue=(await reader.queues("t"))[0])
            assert [each.body for each in await reader.poll()] == [b"after"]
            while len(reader.assigned) != 1:
                assert await reader.poll(timeout_s=0.1) == []


async def send_to_all(mq, topic: str, count: int = 8) -> None:
    await mq.admin.create_topic(topic, queues=4, exist_ok=True)
    for number in range(count):
        queues = await mq.queues(topic)
        await mq.send(topic, b"%d" % number, queue=queues[number % len(queues)], tag="ab"[number % 2])


async def assigned(reader, count: int) -> None:
    await until(lambda: len(reader.assigned) == count)


async def read(reader, count: int, timeout_s: float = 1) -> list[bytes]:
    bodies: list[bytes] = []
    async with asyncio.timeout(10):
        while len(bodies) < count:
            bodies += [message.body for message in await reader.poll(timeout_s=timeout_s)]
    return sorted(bodies)


@pytest.mark.covers("S-CONS-01", "S-CONS-08")
async def test_who_subscribes_shares_the_queues_with_its_group_and_takes_over(cluster, mq):
    await send_to_all(mq, "t")
    async with (
        connect(cluster.namesrv) as other,
        mq.pull_consumer(group="g", start="earliest") as first,
    ):
        await first.subscribe("t")
        await until(lambda: len(first.assigned) == 4)
        async with other.pull_consumer(group="g", start="earliest") as second:
            await second.subscribe("t")
            await until(lambda: len(first.assigned) == len(second.assigned) == 2)
            assert not set(first.assigned) & set(second.assigned)
            assert len(await read(first, 4) + await read(second, 4)) == 8
            await second.commit()
        await until(lambda: len(first.assigned) == 4)
        assert await first.poll(timeout_s=0.2) == [], "what the other one had committed does not come again"


async def test_a_program_is_told_what_comes_and_goes_and_may_seek_before_the_first_message(mq):
    await send_to_all(mq, "t")
    told: list[tuple[str, int]] = []

    async def came(queues) -> None:
        told.append(("+", len(queues)))
        await asyncio.sleep(0.1)
        for queue in queues:
            sharing.seek(queue, 1)

    sharing = mq.pull_consumer(
        group="g",
        start="earliest",
        on_assigned=came,
        on_revoked=lambda queues: told.append(("-", len(queues))),
    )
    async with sharing:
        await sharing.subscribe("t")
        assert await read(sharing, 4, timeout_s=0.01) == [b"4", b"5", b"6", b"7"]
        await sharing.unsubscribe("t")
        assert told == [("+", 4), ("-", 4)] and sharing.assigned == []
        await sharing.subscribe("t")
        await until(lambda: len(told) == 3)
    assert told[-1] == ("-", 4)


async def test_assign_and_subscribe_exclude_each_other(mq):
    await send_to_all(mq, "t")
    async with mq.pull_consumer(group="g", start="earliest") as reader:
        reader.assign(await reader.queues("t"))
        with pytest.raises(ConfigError, match="queues are assigned"):
            await reader.subscribe("t")
        reader.assign(())
        await reader.subscribe("t")
        with pytest.raises(ConfigError, match="topics are subscribed"):
            reader.assign(await reader.queues("t"))
        await reader.unsubscribe("t")
        await reader.unsubscribe("never-subscribed")
        reader.assign(await reader.queues("t"))
        assert len(await read(reader, 8)) == 8


async def test_filters_of_subscribed_topics_change_and_topics_come_and_go(mq):
    await send_to_all(mq, "t")
    await send_to_all(mq, "u", 4)
    async with mq.pull_consumer(group="g", start="earliest") as reader:
        await reader.subscribe("t", tag="a")
        assert await read(reader, 4) == [b"0", b"2", b"4", b"6"]
        await reader.subscribe("t", tag="b")
        await reader.subscribe("u")
        await until(lambda: len(reader.assigned) == 8)
        assert await read(reader, 4) == [b"0", b"1", b"2", b"3"], "those of u"
        await send_to_all(mq, "t")
        assert await read(reader, 4) == [b"1", b"3", b"5", b"7"]
        await reader.unsubscribe("u")
        assert {queue.topic for queue in reader.assigned} == {"t"}


@pytest.mark.covers("S-CONS-03", "S-CONS-05")
async def test_readers_that_broadcast_get_everything_and_keep_their_place_in_a_file(cluster, mq, tmp_path):
    await send_to_all(mq, "t")
    folders = [tmp_path / "1", tmp_path / "2"]
    async with connect(cluster.namesrv) as other:
        for _ in range(2):
            for client, folder in zip((mq, other), folders, strict=True):
                async with client.pull_consumer(
                    group="g", start="earliest", broadcast=True, offset_folder=folder
                ) as reader:
                    await reader.subscribe("t")
                    await assigned(reader, 4)
                    queue = reader.assigned[0]
                    if await reader.committed(queue) is None:
                        assert len(await read(reader, 8)) == 8
                        await reader.commit()
                    assert await reader.poll(timeout_s=0.1) == []
                    assert await reader.committed(queue) == 2
    assert all(list(folder.glob("*/g/offsets.json")) for folder in folders)


async def committed(reader) -> int:
    return sum([await reader.committed(queue) or 0 for queue in reader.assigned])


async def test_what_an_earlier_poll_returned_is_committed_by_itself(mq):
    await send_to_all(mq, "t")
    async with mq.pull_consumer(group="g", start="earliest", auto_commit_s=0.05) as reader:
        reader.assign(await reader.queues("t"))
        assert len(await reader.poll(max_count=3)) <= 3
        await asyncio.sleep(0.2)
        assert await committed(reader) == 0, "it may still be in somebody's hands"
        got = sum((await reader.positions()).values())
        await reader.poll(max_count=1)
        async with asyncio.timeout(5):
            while await committed(reader) < got:
                await asyncio.sleep(0.01)
        assert await committed(reader) == got


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("is_shared", [False, True])
async def test_leaving_commits_what_was_handled(mq, fails, is_shared):
    await send_to_all(mq, "t", 4)
    reader = mq.pull_consumer(group="g", start="earliest", auto_commit_s=100)
    try:
        async with reader:
            if is_shared:
                await reader.subscribe("t")
            else:
                reader.assign(await reader.queues("t"))
            assert len(await read(reader, 4)) == 4
            if fails:
                raise LookupError
    except LookupError:
        pass
    async with mq.pull_consumer(group="g", start="earliest") as after:
        after.assign(await after.queues("t"))
        assert (await committed(after) < 4) is fails


async def test_queues_that_others_get_are_committed_first(cluster, mq):
    await send_to_all(mq, "t", 4)
    async with (
        connect(cluster.namesrv) as other,
        mq.pull_consumer(group="g", start="earliest", auto_commit_s=100) as first,
    ):
        await first.subscribe("t")
        assert len(await read(first, 4)) == 4
        assert await first.poll(timeout_s=0.01) == []
        async with other.pull_consumer(group="g", start="earliest") as second:
            await second.subscribe("t")
            await until(lambda: len(second.assigned) == 2)
            assert await second.poll(timeout_s=0.2) == []


async def test_without_it_nothing_is_committed(mq):
    await send_to_all(mq, "t", 4)
    async with mq.pull_consumer(group="g", start="earliest") as reader:
        reader.assign(await reader.queues("t"))
        assert len(await read(reader, 4)) == 4
        await reader.poll(timeout_s=0.01)
    async with mq.pull_consumer(group="g", start="earliest") as after:
        after.assign(await after.queues("t"))
        assert await committed(after) == 0
