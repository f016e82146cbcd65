import asyncio

import pytest

from sparrowmq.client.consuming import pulling
from sparrowmq.client.consuming.consumer_settings import FlowLimits, subscription
from sparrowmq.client.consuming.process_queue import ProcessQueue
from sparrowmq.client.consuming.pulling import Puller, messages_in, request
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol import hosts
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, PullFlag
from sparrowmq.protocol.requests.client_bodies import ClientConfigCheck
from sparrowmq.protocol.requests.headers import OffsetReply, PullMessage, PullMessageReply, SearchOffset
from sparrowmq.remoting.handler import Reply
from sparrowmq.remoting.log_limit import LogLimit
from tests.client.cluster.test_broker_sessions import World
from tests.client.conftest import until
from tests.records import encoded

QUEUE = MessageQueue("t", "broker-a", 1)
ALL = subscription("t", None, None, 5)
PULL = RequestCode.PULL_MESSAGE
SEARCH = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
HOST = hosts.pack("127.0.0.1:10911")
LINES = LogLimit(SystemClock())


def rec(offset: int, tag: str = "a", body: bytes = b"body", stored_ms: int = 2) -> bytes:
    properties = f"TAGS\x01{tag}\x02".encode()
    return encoded("t", 1, body, properties, queue_offset=offset, physical_offset=1000, store_timestamp_ms=stored_ms)


def found(*records: bytes, next_offset: int, broker_id: int = 0) -> Reply:
    return Reply(0, reply(next_offset, broker_id), body=b"".join(records))


def reply(next_offset: int, broker_id: int = 0, end: int = 100) -> PullMessageReply:
    return PullMessageReply(
        suggest_which_broker_id=broker_id, next_begin_offset=next_offset, min_offset=0, max_offset=end
    )


class Pulled:
    """A queue being pulled from a scripted broker."""

    def __init__(self, peer, flow: FlowLimits | None = None, commits: bool = True) -> None:
        self.world = World(peer)
        self.owned = ProcessQueue(QUEUE, 0, flow or FlowLimits())
        self.arrived: list[int] = []
        self.moves: list[int] = []
        self.committed: int | None = None
        self.puller = Puller(
            "g",
            self.owned,
            ALL,
            self.world.brokers,
            self.world.clock,
            self._take,
            lambda owned, offset: self.moves.append(offset),
            self._resume,
            commits=commits,
        )

    async def _resume(self, queue: MessageQueue) -> int | None:
        return self.committed

    def _take(self, owned: ProcessQueue, messages) -> None:
        for each in messages:
            owned.add([each])
            self.arrived.append(each.offset)


@pytest.fixture
async def pulled(peer):
    peer.has("t")
    peer.usual[PULL] = lambda _: None  # held
    made = Pulled(peer)
    await made.world.routes.of("t")
    running = asyncio.ensure_future(made.puller.run())
    yield made
    running.cancel()
    made.world.pool.close()


def pulls(peer) -> list[PullMessage]:
    return [command.header(PullMessage) for command in peer.requests(PULL)]


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({"hold_s": 0.0}, PullFlag.SUBSCRIPTION),
        ({"hold_s": 15.0}, PullFlag.SUBSCRIPTION | PullFlag.SUSPEND),
        (
            {"hold_s": 15.0, "commit_offset": 7},
            PullFlag.SUBSCRIPTION | PullFlag.SUSPEND | PullFlag.COMMIT_OFFSET,
        ),
    ],
)
def test_a_request_says_what_it_carries(options, flags):
    made = request("g", QUEUE, 5, subscription("t", "a || b", None, 9), count=32, **options)
    assert (made.sys_flag, made.commit_offset) == (flags, options.get("commit_offset", 0))
    assert (made.subscription, made.expression_type, made.sub_version) == ("a || b", "TAG", 9)
    assert made.suspend_timeout_millis == options["hold_s"] * 1000


@pytest.mark.covers("S-CONS-15")
def test_tags_are_compared_exactly():
    body = rec(0, "Aa") + rec(1, "BB") + rec(2, "C")  # Aa and BB have one hash
    matching = messages_in(ReceivedMessage, body, QUEUE, subscription("t", "Aa || C", None, 1), LINES)
    assert [each.offset for each in matching] == [0, 2]
    assert len(messages_in(ReceivedMessage, body, QUEUE, ALL, LINES)) == 3


def test_a_damaged_message_is_left_out_and_told(caplog):
    damaged = bytearray(rec(1))
    damaged[damaged.index(b"body")] ^= 1
    body = rec(0) + bytes(damaged) + rec(2)
    assert [each.offset for each in messages_in(ReceivedMessage, body, QUEUE, ALL, LINES)] == [0, 2]
    assert "skipping a message of t@broker-a[1]" in caplog.text
    assert [each.offset for each in messages_in(ReceivedMessage, rec(0) + b"rubbish", QUEUE, ALL, LINES)] == [0]


async def test_a_broker_that_answers_rubbish_writes_few_lines(peer, pulled, caplog):
    """It did so 3,400 times a second, each time with a line."""
    peer.script(PULL, *(found(b"rubbish", next_offset=number + 1) for number in range(100)))
    await until(lambda: len(pulls(peer)) > 100)
    assert len([line for line in caplog.messages if "skipping the rest" in line]) == 20


async def test_one_answer_brings_more_messages_than_those_of_java(mq):
    queue = MessageQueue("t", "broker-0", 0)
    await asyncio.gather(*[mq.send("t", b"%d" % number, queue=queue) for number in range(200)])
    async with mq.pull_consumer(group="g", start="earliest") as reader:
        reader.assign([queue])
        assert [each.offset for each in await reader.poll()] == list(range(200))


async def test_what_is_found_arrives_and_the_next_pull_goes_on_behind_it(peer, pulled):
    peer.script(PULL, found(rec(0), rec(1), next_offset=2))
    await until(lambda: len(pulls(peer)) == 2)
    assert pulled.arrived == [0, 1]
    first, second = pulls(peer)
    assert (first.queue_offset, first.sys_flag & PullFlag.COMMIT_OFFSET) == (0, 0)
    assert (second.queue_offset, second.commit_offset) == (2, 0)
    assert second.sys_flag & PullFlag.COMMIT_OFFSET


async def test_filtered_messages_are_passed_over(peer, pulled):
    peer.script(
        PULL,
        Reply(ResponseCode.PULL_RETRY_IMMEDIATELY, reply(40)),
        Reply(ResponseCode.PULL_NOT_FOUND, reply(40)),
    )
    await until(lambda: len(pulls(peer)) == 3)
    assert [each.queue_offset for each in pulls(peer)] == [0, 40, 40]
    assert pulled.owned.commit_offset == 40


async def test_an_offset_outside_of_the_queue_is_corrected(peer, pulled, caplog):
    peer.script(PULL, Reply(ResponseCode.PULL_OFFSET_MOVED, reply(30)))
    await until(lambda: len(pulls(peer)) == 2)
    assert pulls(peer)[1].queue_offset == 30 and not pulled.moves
    assert "has no offset 0 for us" in caplog.text


@pytest.mark.parametrize(("committed", "following"), [(2, 2), (None, 4), (9, 4)])
async def test_a_broker_that_lost_messages_is_read_from_the_committed_offset_on(peer, pulled, committed, following):
    pulled.committed = committed
    peer.script(
        PULL,
        Reply(ResponseCode.PULL_NOT_FOUND, reply(6)),
        Reply(ResponseCode.PULL_OFFSET_MOVED, reply(4, end=4)),
    )
    await until(lambda: len(pulls(peer)) == 3)
    assert [each.queue_offset for each in pulls(peer)] == [0, 6, following]


@pytest.mark.parametrize(("searched", "following"), [(2, 2), (4, 4), (9, 4)])
@pytest.mark.parametrize("commits", [False, True])
async def test_without_a_committed_offset_a_shorter_queue_is_read_from_the_first_newer_message_on(
    peer, pulled, commits, searched, following
):
    pulled.puller._commits, pulled.committed = (
        commits,
        None if commits else 0,
    )  # a broker knows no local offsets
    peer.usual[SEARCH] = lambda _: Reply(header=OffsetReply(offset=searched))
    peer.script(PULL, found(rec(5), next_offset=6), Reply(ResponseCode.PULL_OFFSET_MOVED, reply(4, end=4)))
    await until(lambda: pulled.moves)
    assert pulled.moves == [following]
    (search,) = [command.header(SearchOffset) for command in peer.requests(SEARCH)]
    assert search.timestamp == 3, "the message that came was stored at 2"


async def cut_off(peer, pulled) -> None:
    """Break the connection, and let the puller ask again."""
    for session in list(peer.sessions):
        session.close()
    await until(lambda: pulled.owned.is_cut_off)
    await pulled.world.clock.advance(pulling.PAUSE_S)


async def test_nothing_is_committed_at_a_broker_that_came_back_before_it_has_answered(peer, pulled):
    peer.script(PULL, found(rec(0), next_offset=1))
    await until(lambda: len(pulls(peer)) == 2)
    await cut_off(peer, pulled)
    await until(lambda: len(pulls(peer)) == 3)
    peer.script(PULL, found(rec(0), next_offset=1))
    await cut_off(peer, pulled)
    await until(lambda: len(pulls(peer)) == 5)
    flags = [bool(each.sys_flag & PullFlag.COMMIT_OFFSET) for each in pulls(peer)]
    assert flags == [False, True, False, False, False]


@pytest.mark.parametrize(
    ("there", "searched", "following"),
    [
        (found(rec(5), next_offset=6), None, 6),
        (found(rec(5, stored_ms=9), next_offset=6), 4, 4),
        (found(rec(7), next_offset=8), 3, 3),
        (Reply(ResponseCode.PULL_NOT_FOUND, reply(6)), 2, 2),
        (Reply(ResponseCode.PULL_NOT_FOUND, reply(6)), 8, 6),
        (Reply(ResponseCode.PULL_OFFSET_MOVED, reply(3, end=3)), None, 6),
    ],
)
async def test_after_a_break_the_last_message_shows_whether_others_took_the_place_of_ours(
    peer, pulled, caplog, there, searched, following
):
    peer.usual[SEARCH] = lambda _: Reply(header=OffsetReply(offset=searched))
    peer.script(PULL, found(rec(5), next_offset=6))
    await until(lambda: len(pulls(peer)) == 2)
    pulled.owned.settle(pulled.owned.unsettled_messages[0])
    peer.script(PULL, there)
    await cut_off(peer, pulled)
    await until(lambda: len(pulls(peer)) == 4)
    look, after = pulls(peer)[2:]
    assert (look.queue_offset, look.max_msg_nums, look.suspend_timeout_millis) == (5, 1, 0)
    assert after.queue_offset == following
    assert len(peer.requests(SEARCH)) == (searched is not None)
    assert ("lost; going on at" in caplog.text) == (following < 6)


async def test_a_move_with_messages_in_hand_is_the_owners_affair(peer, pulled):
    peer.script(PULL, found(rec(5), next_offset=6), Reply(ResponseCode.PULL_OFFSET_MOVED, reply(2)))
    await until(lambda: pulled.moves == [2])


async def test_a_move_to_the_same_place_is_not_repeated_at_once(peer, pulled):
    peer.script(PULL, Reply(ResponseCode.PULL_OFFSET_MOVED, reply(0)))
    await until(lambda: len(pulls(peer)) == 1)
    await asyncio.sleep(0.02)
    assert len(pulls(peer)) == 1
    await pulled.world.clock.advance(pulling.PAUSE_S)
    await until(lambda: len(pulls(peer)) == 2)


async def test_a_full_queue_is_not_pulled_until_something_is_settled(peer):
    peer.has("t")
    peer.usual[PULL] = lambda _: None
    pulled = Pulled(peer, FlowLimits(messages=2))
    await pulled.world.routes.of("t")
    peer.script(PULL, found(rec(0), rec(1), next_offset=2))
    running = asyncio.ensure_future(pulled.puller.run())
    await until(lambda: pulled.arrived == [0, 1])
    await pulled.world.clock.advance(1)
    assert len(pulls(peer)) == 1
    pulled.owned.settle(pulled.owned.unsettled_messages[0])
    await until(lambda: len(pulls(peer)) == 2)
    running.cancel()
    pulled.world.pool.close()


async def test_messages_that_are_never_settled_are_mentioned(peer, caplog):
    peer.has("t")
    pulled = Pulled(peer, FlowLimits(messages=1))
    await pulled.world.routes.of("t")
    peer.script(PULL, found(rec(0), next_offset=1))
    running = asyncio.ensure_future(pulled.puller.run())
    await until(lambda: pulled.arrived)
    await pulled.world.clock.advance(pulling.STALLED_S)
    assert "call msg.ack()" in caplog.text
    running.cancel()
    pulled.world.pool.close()


@pytest.mark.parametrize("code", sorted(pulling.UNKNOWN_GROUP))
async def test_a_broker_that_does_not_know_us_gets_a_heartbeat(peer, pulled, code):
    peer.script(PULL, Reply(code, remark="who are you"))
    await until(lambda: len(peer.requests(RequestCode.HEART_BEAT)) == 2)
    await asyncio.sleep(0.01)
    await pulled.world.clock.advance(pulling.PAUSE_S)
    await until(lambda: len(pulls(peer)) == 2)


async def test_trouble_is_logged_once_and_pulling_goes_on(peer, pulled, caplog):
    peer.script(PULL, *[Reply(ResponseCode.SYSTEM_ERROR, remark="broken")] * 3)
    for count in (1, 2, 3):
        await until(lambda: len(pulls(peer)) == count)  # noqa: B023
        await asyncio.sleep(0.01)
        await pulled.world.clock.advance(pulling.PAUSE_S)
    await until(lambda: len(pulls(peer)) == 4)
    assert caplog.text.count("broken") == 1


async def test_a_slave_is_pulled_when_the_master_says_so_and_gets_no_offsets(peer, pulled):
    async with type(peer)() as slave:
        slave.usual[PULL] = lambda _: None
        peer.routes["t"].broker_datas[0].broker_addrs[1] = slave.address
        await pulled.world.routes.fetch("t")
        peer.script(PULL, found(rec(0), next_offset=1, broker_id=1))
        # The pull that is held now was sent before the script: let it go.
        for session in peer.sessions:
            session.close()
        await asyncio.sleep(0.05)
        await pulled.world.clock.advance(pulling.PAUSE_S)
        await until(lambda: slave.requests(PULL))
        assert not slave.requests(PULL)[0].header(PullMessage).sys_flag & PullFlag.COMMIT_OFFSET


async def test_offsets_that_are_kept_here_are_not_committed(peer):
    peer.has("t")
    peer.usual[PULL] = lambda _: None
    pulled = Pulled(peer, commits=False)
    await pulled.world.routes.of("t")
    peer.script(PULL, found(rec(0), next_offset=1))
    running = asyncio.ensure_future(pulled.puller.run())
    await until(lambda: len(pulls(peer)) == 2)
    assert not pulls(peer)[1].sys_flag & PullFlag.COMMIT_OFFSET
    running.cancel()
    pulled.world.pool.close()


class Filtered(Pulled):
    """A queue that is pulled by an SQL92 expression."""

    def __init__(self, peer) -> None:
        super().__init__(peer)
        self.puller._subscription = subscription("t", None, "a > 5", 5)


@pytest.fixture
async def filtered(peer):
    peer.has("t")
    peer.usual[PULL] = lambda _: None
    made = Filtered(peer)
    await made.world.routes.of("t")
    yield made
    made.world.pool.close()


async def test_an_expression_that_cannot_be_read_ends_the_pulling(peer, filtered):
    peer.script(PULL, Reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark="what is that"))
    with pytest.raises(
        ConfigError, match=r"cannot filter t by the SQL92 expression 'a > 5' .what is that.; correct it"
    ):
        await asyncio.wait_for(filtered.puller.run(), 5)


async def test_a_broker_that_says_when_asked_that_it_cannot_filter_ends_the_pulling(peer, filtered):
    peer.script(PULL, Reply(ResponseCode.SYSTEM_ERROR, remark="no"))
    peer.usual[RequestCode.CHECK_CLIENT_CONFIG] = lambda _: Reply(ResponseCode.SYSTEM_ERROR, remark="no SQL")
    with pytest.raises(ConfigError, match="no SQL"):
        await asyncio.wait_for(filtered.puller.run(), 5)
    (check,) = peer.requests(RequestCode.CHECK_CLIENT_CONFIG)
    asked = ClientConfigCheck.decode(check.body).subscription_data
    assert asked is not None and asked.expression == "a > 5"


async def test_an_error_that_is_not_the_filters_passes(peer, filtered):
    peer.script(PULL, Reply(ResponseCode.SYSTEM_ERROR, remark="busy"))
    peer.usual[RequestCode.CHECK_CLIENT_CONFIG] = lambda _: Reply()
    running = asyncio.ensure_future(filtered.puller.run())
    await until(lambda: peer.requests(RequestCode.CHECK_CLIENT_CONFIG))
    await asyncio.sleep(0.01)
    await filtered.world.clock.advance(pulling.PAUSE_S)
    await until(lambda: len(pulls(peer)) == 2)
    running.cancel()


async def test_what_a_pull_commits_is_known_while_it_is_under_way(peer, pulled):
    peer.script(PULL, found(rec(0), next_offset=1))
    await until(lambda: len(pulls(peer)) == 2)
    assert pulled.owned.pull_commits == 0


@pytest.mark.parametrize("following", [2, 0, -5])
async def test_messages_that_lead_nowhere_are_not_taken_again_and_again(peer, pulled, caplog, following):
    peer.usual[PULL] = lambda _: found(rec(pulls(peer)[-1].queue_offset), next_offset=following)
    peer.script(PULL, found(rec(0), rec(1), next_offset=2))
    for _ in range(3):
        await until(lambda: f"names {following} as the next offset" in caplog.text)
        await pulled.world.clock.advance(pulling.PAUSE_S)
    assert pulled.arrived == [0, 1] and pulled.owned.next_offset == 2
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1


@pytest.mark.parametrize(
    "answers",
    [
        [Reply(ResponseCode.PULL_NOT_FOUND, reply(0))],
        [Reply(ResponseCode.PULL_RETRY_IMMEDIATELY, reply(-5))],
        [Reply(ResponseCode.PULL_OFFSET_MOVED, reply(7)), Reply(ResponseCode.PULL_OFFSET_MOVED, reply(3))],
        [found(next_offset=0)],
    ],
)
async def test_a_broker_that_finds_nothing_at_once_is_not_asked_without_a_pause(peer, pulled, answers):
    peer.script(PULL, *answers * 10)
    await until(lambda: len(pulls(peer)) == 6)
    await asyncio.sleep(0.02)
    assert len(pulls(peer)) == 6
    await pulled.world.clock.advance(0.001)
    await until(lambda: len(pulls(peer)) == 7)


@pytest.mark.parametrize("code", [ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.SUCCESS])
async def test_a_queue_whose_messages_are_filtered_is_read_without_a_pause(peer, pulled, code):
    """The broker filters them, or the client if only the hashes of their tags are wanted."""
    peer.script(PULL, *(Reply(code, reply(at)) for at in range(1, 50)))
    await until(lambda: len(pulls(peer)) == 50)
    assert pulled.owned.next_offset == 49
