import asyncio
from datetime import datetime, timedelta

import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import ClientClosed, ConfigError, NoRoute, RemoteError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat, Heartbeat
from sparrowmq.protocol.requests.headers import OffsetReply
from sparrowmq.remoting.handler import Reply
from tests.client.conftest import until
from tests.client.consuming.test_assignment import OF_SLAVE
from tests.client.consuming.test_consumer import cluster_on
from tests.client.consuming.test_pulling import found, pulls, rec, reply
from tests.client.consuming.test_shared_topics import assigned, read, send_to_all
from tests.interop.apache import free_ports

QUEUES = [MessageQueue("t", "broker-a", number) for number in range(2)]
PULL = RequestCode.PULL_MESSAGE


@pytest.fixture
async def talker(peer):
    peer.has("t", queues=2)
    peer.usual |= {
        PULL: lambda _: None,
        RequestCode.QUERY_CONSUMER_OFFSET: lambda _: Reply(ResponseCode.QUERY_NOT_FOUND),
        RequestCode.UPDATE_CONSUMER_OFFSET: lambda _: Reply(),
        RequestCode.GET_MAX_OFFSET: lambda _: Reply(header=OffsetReply(offset=100)),
        RequestCode.GET_MIN_OFFSET: lambda _: Reply(header=OffsetReply(offset=10)),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda _: Reply(header=OffsetReply(offset=50)),
    }
    async with connect(peer.address) as mq:
        yield mq


@pytest.fixture
async def reader(talker):
    async with talker.pull_consumer(group="g") as made:
        await made.queues("t")
        yield made


@pytest.mark.covers("S-CONS-01")
async def test_messages_come_as_they_are_and_positions_follow(peer, reader):
    reader.assign(QUEUES[:1])
    reader.seek(QUEUES[0], 5)
    peer.script(PULL, found(rec(5), rec(6), rec(7), next_offset=8))
    assert [each.offset for each in await reader.poll(max_count=2)] == [5, 6]
    assert await reader.position(QUEUES[0]) == 7
    assert [each.offset for each in await reader.poll()] == [7]
    assert await reader.positions() == {QUEUES[0]: 8}


async def test_leaving_commits_at_the_next_master(peer, talker):
    async with talker.pull_consumer(group="g", auto_commit_s=60) as reader:
        await reader.queues("t")
        reader.assign(QUEUES[:1])
        peer.script(PULL, found(rec(100), next_offset=101))
        assert len(await reader.poll()) == 1
        peer.script(RequestCode.UPDATE_CONSUMER_OFFSET, OF_SLAVE, OF_SLAVE)
    assert len(peer.requests(RequestCode.UPDATE_CONSUMER_OFFSET)) == 3


async def test_queues_that_a_program_remembers_are_read_without_a_look_at_their_topic(peer, talker):
    async with talker.pull_consumer(group="g") as reader:
        reader.assign(QUEUES[:1])
        peer.script(PULL, found(rec(100), next_offset=101))
        assert [each.offset for each in await reader.poll()] == [100]


@pytest.mark.parametrize("way", ["seek_to_beginning", "seek_to_end", "committed", "position"])
async def test_a_remembered_queue_has_its_broker_looked_up(talker, way):
    async with talker.pull_consumer(group="g") as reader:
        reader.assign(QUEUES[:1])
        await getattr(reader, way)(QUEUES[0])


async def test_nothing_there_is_an_empty_answer_after_the_time_and_the_request_stays(peer, reader):
    reader.assign(QUEUES)
    assert await reader.poll(timeout_s=0.05) == []
    assert await reader.poll(timeout_s=0.05) == []
    assert len(pulls(peer)) == 2


@pytest.mark.parametrize(("start", "offset"), [("latest", 100), ("earliest", 0), (datetime(2026, 1, 1), 50)])
async def test_a_queue_begins_where_it_was_asked_to(talker, reader, start, offset):
    async with talker.pull_consumer(group="another", start=start) as another:
        another.assign(QUEUES[:1])
        assert await another.position(QUEUES[0]) == offset


async def test_a_queue_goes_on_where_the_group_stands(peer, reader):
    peer.usual[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: Reply(header=OffsetReply(offset=42))
    reader.assign(QUEUES[:1])
    assert await reader.position(QUEUES[0]) == 42
    assert await reader.committed(QUEUES[0]) == 42


async def test_it_seeks_to_beginning_end_and_time(reader):
    reader.assign(QUEUES)
    await reader.seek_to_beginning()
    assert set((await reader.positions()).values()) == {10}
    await reader.seek_to_end(QUEUES[0])
    assert await reader.positions() == {QUEUES[0]: 100, QUEUES[1]: 10}
    await reader.seek_to_time(datetime.now() - timedelta(hours=1))
    assert set((await reader.positions()).values()) == {50}


async def test_seeking_forgets_what_was_fetched_and_asked_for(peer, reader):
    reader.assign(QUEUES[:1])
    reader.seek(QUEUES[0], 0)
    peer.script(PULL, found(rec(0), rec(1), next_offset=2), found(rec(9), next_offset=10))
    await reader.poll(max_count=1)
    reader.seek(QUEUES[0], 9)
    assert [each.offset for each in await reader.poll()] == [9]
    assert pulls(peer)[1].queue_offset == 9


async def test_filtered_messages_move_the_position(peer, reader, caplog):
    reader.assign(QUEUES[:1], tag="b")
    reader.seek(QUEUES[0], 0)
    peer.script(PULL, found(rec(0, tag="a"), next_offset=1), Reply(ResponseCode.PULL_OFFSET_MOVED, reply(30)))
    assert await reader.poll(timeout_s=0.1) == []
    assert await reader.position(QUEUES[0]) == 30
    assert "has no offset 1 for us (it holds 0 to 100); going on at 30" in caplog.text


async def test_positions_are_committed_or_any_offsets(peer, reader):
    reader.assign(QUEUES)
    reader.seek(QUEUES[0], 7)
    await reader.commit()
    await reader.commit({QUEUES[1]: 3})
    sent = [command.ext_fields() for command in peer.requests(RequestCode.UPDATE_CONSUMER_OFFSET)]
    assert [(each["queueId"], each["commitOffset"]) for each in sent] == [("0", "7"), ("1", "3")]


async def test_a_paused_queue_gives_nothing(peer, reader):
    reader.assign(QUEUES)
    for queue in QUEUES:
        reader.seek(queue, 0)
    reader.pause(QUEUES[0])
    peer.script(PULL, found(rec(0), next_offset=1))
    (message,) = await reader.poll()
    assert message.queue == QUEUES[1]
    reader.resume()
    peer.script(PULL, found(rec(0), next_offset=1))
    (message,) = await reader.poll()
    assert message.queue == QUEUES[0]


async def test_assigning_anew_keeps_positions(reader):
    reader.assign(QUEUES)
    reader.seek(QUEUES[0], 7)
    reader.assign(QUEUES[:1])
    assert reader.assigned == QUEUES[:1] and await reader.position(QUEUES[0]) == 7
    with pytest.raises(ConfigError, match="not assigned"):
        reader.seek(QUEUES[1], 0)


async def test_trouble_that_passes_is_waited_for(peer, reader, caplog):
    reader.assign(QUEUES[:1])
    reader.seek(QUEUES[0], 0)
    peer.script(PULL, Reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST), found(rec(0), next_offset=1))
    assert len(await reader.poll(timeout_s=5)) == 1
    assert "trying again" in caplog.text


async def test_a_lost_connection_is_made_again(peer, reader):
    reader.assign(QUEUES[:1])
    reader.seek(QUEUES[0], 0)
    polling = asyncio.ensure_future(reader.poll(timeout_s=5))
    await until(lambda: pulls(peer))
    peer.script(PULL, found(rec(0), next_offset=1))
    for session in peer.sessions:
        session.close()
    assert len(await polling) == 1


async def test_a_refusal_is_an_error(peer, reader):
    reader.assign(QUEUES[:1])
    reader.seek(QUEUES[0], 0)
    peer.script(PULL, Reply(ResponseCode.NO_PERMISSION, remark="not for you"))
    with pytest.raises(RemoteError, match="not for you"):
        await reader.poll()


async def test_a_cancelled_poll_loses_nothing(peer, reader):
    reader.assign(QUEUES[:1])
    reader.seek(QUEUES[0], 0)
    polling = asyncio.ensure_future(reader.poll())
    await until(lambda: pulls(peer))
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    held = peer.requests(PULL)[0]
    answer = found(rec(0), next_offset=1)
    peer.sessions[0].reply(held, answer.code, answer.header, None, answer.body)
    assert len(await reader.poll()) == 1


async def test_mistakes_are_told(reader):
    with pytest.raises(ConfigError, match="no queue is assigned"):
        await reader.poll()
    reader.assign(QUEUES)
    with pytest.raises(ConfigError, match="negative"):
        reader.seek(QUEUES[0], -1)


async def test_brokers_know_it_as_an_active_consumer(peer, reader):
    reader.assign(QUEUES)
    await reader._network.brokers.announce()
    await reader._network.brokers.session(peer.address)
    (beat,) = Heartbeat.decode(peer.requests(RequestCode.HEART_BEAT)[-1].body).consumer_data_set
    assert (beat.group_name, beat.consume_type) == ("g", "CONSUME_ACTIVELY")
    assert {each.topic for each in beat.subscription_data_set} == {"t"}


async def test_an_operator_sees_and_moves_it(reader):
    reader.assign(QUEUES)
    await reader._reset_offsets({QUEUES[0]: 33, MessageQueue("t", "elsewhere", 0): 1})
    assert reader._running_info().mq_table[QUEUES[0]].commit_offset == 33
    reader._on_members_changed()


@pytest.fixture
async def five_each(mq) -> list[MessageQueue]:
    """Two queues of five messages, all of which the group g has committed."""
    await mq.admin.create_topic("t", queues=2)
    queues = sorted(await mq.queues("t"))
    for number in range(10):
        await mq.send("t", b"x", queue=queues[number % 2])
    async with mq.pull_consumer(group="g") as reader:
        await reader.commit(dict.fromkeys(queues, 5))
    return queues


async def standing(mq) -> list[int | None]:
    return [each.committed for each in (await mq.admin.lag("g", "t")).queues]


@pytest.mark.parametrize("share", [0, 1, 2])
async def test_an_operator_moves_the_queues_that_a_reader_has_and_those_that_it_has_not(mq, five_each, share):
    async with mq.pull_consumer(group="g") as reader:
        reader.assign(five_each[:share])
        await reader.positions()
        for _ in range(2):  # The second time there is nothing to be seen of the first.
            assert set((await mq.admin.reset("g", "t", "earliest")).values()) == {0}
            async with asyncio.timeout(10):
                while await standing(mq) != [0, 0]:
                    await asyncio.sleep(0.01)
            assert set((await reader.positions()).values()) <= {0}
            async with (
                connect(str(mq._network.name_servers)) as other,
                other.pull_consumer(group="g") as another,
            ):
                await another.queues("t")
                await another.commit(dict.fromkeys(five_each, 5))
    assert await standing(mq) == [5, 5]


async def test_readers_that_share_a_topic_commit_where_an_operator_moved_each(mq, five_each):
    async with mq.pull_consumer(group="g") as reader:
        await reader.subscribe("t")
        await assigned(reader, 2)
        await reader._reset_offsets({five_each[0]: 2, MessageQueue("t", "elsewhere", 0): 1})
        assert (await reader.positions())[five_each[0]] == 2
    assert await standing(mq) == [2, 5]


async def test_another_filter_for_assigned_queues_counts_from_where_they_are(peer, reader):
    reader.assign(QUEUES[:1], tag="a")
    reader.seek(QUEUES[0], 5)
    peer.script(PULL, found(rec(5), rec(6), next_offset=7))
    assert len(await reader.poll(max_count=1)) == 1
    reader.assign(QUEUES[:1], where="amount > 5")
    assert await reader.position(QUEUES[0]) == 6
    await reader.poll(timeout_s=0.05)
    asked = pulls(peer)[-1]
    assert (asked.queue_offset, asked.expression_type, asked.subscription) == (6, "SQL92", "amount > 5")


async def test_some_queues_alone_are_committed(peer, reader):
    reader.assign(QUEUES)
    reader.seek(QUEUES[0], 7)
    reader.seek(QUEUES[1], 8)
    await reader.commit(QUEUES[1:])
    sent = [command.ext_fields() for command in peer.requests(RequestCode.UPDATE_CONSUMER_OFFSET)]
    assert [(each["queueId"], each["commitOffset"]) for each in sent] == [("1", "8")]
    with pytest.raises(ConfigError, match="not assigned"):
        await reader.commit([MessageQueue("t", "elsewhere", 0)])
    with pytest.raises(ConfigError, match="negative"):
        await reader.commit({QUEUES[0]: -1})


# Waiting ------------------------------------------------------------------------------------------------------------


async def test_a_poll_that_waits_is_woken_and_so_is_the_next_one_if_none_does(reader):
    reader.assign(QUEUES)
    polling = asyncio.ensure_future(reader.poll(timeout_s=20))
    await asyncio.sleep(0.01)
    reader.wakeup()
    assert await asyncio.wait_for(polling, 1) == []
    reader.wakeup()
    assert await asyncio.wait_for(reader.poll(timeout_s=20), 1) == []
    assert await reader.poll(timeout_s=0.01) == []


async def test_queues_that_come_while_a_poll_waits_are_read_by_it(mq):
    await send_to_all(mq, "t", 4)
    async with mq.pull_consumer(group="g", start="earliest") as reader:
        await reader.subscribe("t")
        assert await asyncio.wait_for(reader.poll(timeout_s=9), 5)


async def test_a_broker_that_is_away_does_not_keep_the_others_messages(peer, reader):
    peer.has("u", queues=1, others={"broker-b": "192.0.2.1:10911"})  # nobody is there, and nothing says so
    there, away = await reader.queues("u")
    reader.assign([there, away])
    reader.seek(there, 0)
    peer.script(PULL, found(rec(0), next_offset=1))
    assert len(await asyncio.wait_for(reader.poll(timeout_s=2), 1)) == 1
    assert await asyncio.wait_for(reader.poll(timeout_s=0.1), 1) == []


async def test_queues_are_served_in_turns(peer, reader):
    reader.assign(QUEUES)
    for queue in QUEUES:
        reader.seek(queue, 0)
    peer.script(
        PULL,
        *[found(*[rec(number) for number in range(3)], next_offset=3)] * 2,
    )
    readings = reader._assigned_queues

    def are_fetched() -> bool:
        readings.collect()
        readings.ask()
        return all(each.fetched for each in readings.all())

    await until(are_fetched)
    served = [(await reader.poll(max_count=1))[0].queue.queue_id for _ in range(6)]
    assert sorted(served[:2]) == sorted(served[2:4]) == sorted(served[4:]) == [0, 1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_count": 0},
        {"max_count": -1},
        {"max_count": None},
        {"timeout_s": -1},
        {"timeout_s": float("nan")},
    ],
)
async def test_a_poll_of_nonsense_is_an_error(reader, wrong):
    reader.assign(QUEUES)
    with pytest.raises(ConfigError):
        await reader.poll(**wrong)


async def test_outside_of_its_block_it_does_nothing(talker):
    (outside := talker.pull_consumer(group="another")).assign(QUEUES)
    with pytest.raises(ClientClosed):
        await outside.poll()


async def test_it_starts_while_everything_is_down_and_recovers(tmp_path):
    ports = free_ports(2)
    async with (
        connect(f"127.0.0.1:{ports[0]}") as mq,
        mq.pull_consumer(group="g", start="earliest") as reader,
    ):
        await reader.subscribe("t")
        for body in (b"x", b"y"):
            assert await reader.poll(timeout_s=0.1) == []
            async with cluster_on(tmp_path, *ports) as cluster, connect(cluster.namesrv) as sender:
                await sender.send("t", body)
                assert await read(reader, 1) == [body]


async def test_a_program_is_told_when_a_topic_has_other_queues(mq):
    await send_to_all(mq, "t", 1)
    told: list[int] = []
    async with mq.pull_consumer(group="g") as reader:
        await reader.watch("t", lambda queues: told.append(len(queues)))
        await mq.admin.change_topic("t", queues=6)
        async with asyncio.timeout(10):
            while not told:
                await mq._network.routes.refresh()
        await mq._network.routes.refresh()
        assert told == [6]
        with pytest.raises(NoRoute):
            await reader.watch("there-is-none", print)


async def test_brokers_know_it_as_what_it_is(peer, reader):
    async with (
        connect(peer.address, client_id="me") as mq,
        mq.pull_consumer(group="h", start="earliest", broadcast=True) as another,
    ):
        await another.subscribe("t", tag="a")
        await until(lambda: len(another.assigned) == 2)
        await another.poll(timeout_s=0.1)

        def beats() -> list[ConsumerBeat]:
            beats = (Heartbeat.decode(each.body) for each in peer.requests(RequestCode.HEART_BEAT))
            return [part for each in beats for part in each.consumer_data_set if part.group_name == "h"]

        await until(lambda: beats() and beats()[-1].subscription_data_set)
        beat = beats()[-1]
        assert (beat.message_model, beat.consume_from_where) == ("BROADCASTING", "CONSUME_FROM_FIRST_OFFSET")
        assert [each.expression for each in beat.subscription_data_set] == ["a"]
        another._on_members_changed()
        assert another._running_info().mq_table.keys() == set(QUEUES)


async def test_offsets_are_found_by_time_without_moving(reader):
    assert await reader.offset_at(QUEUES[0], datetime(2026, 1, 1)) == 50
    assert reader.assigned == []
