import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from sparrowmq.client.client import Client, connect
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendStatus
from sparrowmq.errors import (
    OF_A_SLAVE,
    BrokerUnreachable,
    ClientClosed,
    ConfigError,
    InvalidMessage,
    MessageTooLarge,
    NameServerUnreachable,
    NoRoute,
    RemoteError,
    RequestTimeout,
    SendFailed,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.requests.headers import SendMessageV2
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing.clock import ManualClock
from tests.client.conftest import until
from tests.client.scripted import Scripted, messages_in, stored

SEND = RequestCode.SEND_MESSAGE_V2
BUSY = Reply(ResponseCode.SYSTEM_BUSY, remark="[TIMEOUT_CLEAN_QUEUE]broker busy")
NOBODY = "127.0.0.1:1"  # nobody listens on tcpmux


@asynccontextmanager
async def client(peer: Scripted, clock=None, **settings):
    async with connect(peer.address, settings=ProducerSettings(**settings), clock=clock) as mq:
        yield mq


def queue_ids(peer: Scripted) -> list[int]:
    return [command.header(SendMessageV2).queue_id for command in peer.sent]


@pytest.mark.covers("S-PROD-19")
@pytest.mark.covers("S-PROD-03")
async def test_a_retriable_error_is_retried_on_another_broker(peer):
    async with Scripted("broker-b") as other, client(peer) as mq:
        peer.has("t", queues=2, others={other.name: other.address})
        for each in (peer, other):
            each.script(SEND, BUSY)
        await mq.send("t", b"x")
        # Whoever was asked first was busy, then the other one, then the first again.
        assert sorted([len(peer.sent), len(other.sent)]) == [1, 2]


@pytest.mark.covers("S-PROD-03")
@pytest.mark.parametrize("queues", [2, 3])
async def test_a_retry_on_the_only_broker_goes_to_another_queue(peer, queues):
    peer.has("t", queues=queues)
    peer.script(SEND, BUSY, BUSY)
    async with client(peer) as mq:
        await mq.send("t", b"x")
    assert len(peer.sent) == 3 and all(one != next_one for one, next_one in pairwise(queue_ids(peer)))


@pytest.mark.covers("S-PROD-03")
@pytest.mark.covers("S-PROD-21")
async def test_three_attempts_are_made_and_the_last_error_is_the_cause(peer):
    peer.has("t")
    peer.script(SEND, *[Reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark="disk full")] * 3)
    async with client(peer) as mq:
        with pytest.raises(SendFailed, match=r"after 3 attempts.*disk full.*send it again later") as caught:
            await mq.send("t", b"x")
    assert isinstance(caught.value.cause, RemoteError) and len(peer.sent) == 3
    assert not caught.value.is_in_doubt and "It is not stored" in str(caught.value)


async def test_a_send_that_a_slave_refuses_waits_for_the_master_and_has_all_attempts_there(peer):
    peer.has("t")
    of_a_slave = Reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark=f"no: {OF_A_SLAVE}")
    peer.script(SEND, *[of_a_slave] * 5, None)
    async with client(peer, timeout_s=30) as mq:
        future = mq.send_soon("t", b"x")
        await until(lambda: len(peer.sent) == 6)
        for session in peer.sessions:
            session.close()
        assert (await future).status is SendStatus.OK and len(peer.sent) == 7


@pytest.mark.covers("S-PROD-19")
async def test_an_error_that_no_other_broker_would_mend_is_not_retried(peer):
    peer.has("t")
    peer.script(SEND, Reply(ResponseCode.MESSAGE_ILLEGAL, remark="too long"))
    async with client(peer) as mq:
        with pytest.raises(SendFailed, match=r"at the first attempt.*too long"):
            await mq.send("t", b"x")
    assert len(peer.sent) == 1


@pytest.mark.covers("S-PROD-04")
async def test_all_attempts_together_have_a_time_limit(peer):
    peer.has("t")
    peer.script(SEND, *[None] * 3)
    async with client(peer, timeout_s=0.3) as mq:
        begin = asyncio.get_running_loop().time()
        with pytest.raises(SendFailed) as caught:
            await mq.send("t", b"x")
        assert asyncio.get_running_loop().time() - begin < 1.0
    assert isinstance(caught.value.cause, RequestTimeout) and len(peer.sent) == 1
    assert caught.value.is_in_doubt and "must expect it twice" in str(caught.value)


@pytest.mark.covers("S-PROD-19")
async def test_a_lost_connection_is_retried_on_a_new_one(peer):
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer) as mq:
        future = mq.send_soon("t", b"x")
        await until(lambda: peer.sent)
        for session in peer.sessions:
            session.close()
        assert (await future).offset == 7
    assert len(peer.sent) == 2


async def test_a_short_restart_of_the_only_broker_passes_unseen(peer):
    peer.has("t", others={})
    async with Scripted("broker-a") as broker:
        port = int(broker.address.rpartition(":")[2])
        peer.routes["t"] = broker_route(broker)
        async with client(peer) as mq:
            await mq.send("t", b"before")
            await broker.__aexit__()
            future = mq.send_soon("t", b"meanwhile")
            await asyncio.sleep(0.3)
            restarted = Scripted("broker-a")
            restarted._server.port = port
            async with restarted:
                await future
                assert len(restarted.sent) == 1


def broker_route(broker: Scripted):
    broker.has("t")
    return broker.routes["t"]


async def test_an_unreachable_broker_is_told_by_name(peer):
    peer.has("t")
    peer.routes["t"].broker_datas[0].broker_addrs[0] = NOBODY
    async with client(peer, timeout_s=0.5) as mq:
        with pytest.raises(SendFailed, match=r"cannot connect to 127.0.0.1:1") as caught:
            await mq.send("t", b"x")
    assert isinstance(caught.value.cause, BrokerUnreachable | TimeoutError)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_stored_less_safely_is_a_status_and_no_error(peer, code, status):
    peer.has("t")
    peer.script(SEND, stored(code))
    async with client(peer) as mq:
        assert (await mq.send("t", b"x")).status is status


@pytest.mark.covers("S-PROD-12")
async def test_stored_less_safely_is_retried_if_wanted(peer):
    peer.has("t")
    peer.script(SEND, stored(ResponseCode.FLUSH_DISK_TIMEOUT))
    async with client(peer, retry_not_stored=True) as mq:
        assert (await mq.send("t", b"x")).status is SendStatus.OK
    assert len(peer.sent) == 2


@pytest.mark.covers("S-PROD-16")
async def test_ordered_messages_go_one_by_one_and_are_not_retried(peer):
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer, timeout_s=0.5) as mq:
        first, second = mq.send_soon("t", b"1", fifo="k"), mq.send_soon("t", b"2", fifo="k")
        other = mq.send_soon("t", b"3", queue=MessageQueue("t", "broker-a", 0))
        await other
        assert not second.done() and [command.body for command in peer.sent] == [b"1", b"3"]
        with pytest.raises(SendFailed):
            await first
        await second
    assert [command.body for command in peer.sent] == [b"1", b"3", b"2"]


async def test_the_window_bounds_what_is_in_flight(peer):
    peer.has("t")
    peer.script(SEND, *[None] * 4)
    async with client(peer, window=4, max_batch=1, timeout_s=0.3) as mq:
        futures = [mq.send_soon("t", b"%d" % number) for number in range(6)]
        await until(lambda: len(peer.sent) == 4)
        assert mq.unanswered == 6
        draining = asyncio.ensure_future(mq.drain())
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [isinstance(result, SendFailed) for result in results] == [True] * 4 + [False] * 2
        await asyncio.wait_for(draining, 1)
        await mq.flush()
        assert mq.unanswered == 0


async def test_too_much_waiting_is_refused(peer):
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer, window=1, waiting_bytes=2000, timeout_s=0.2) as mq:
        with pytest.raises(SendFailed, match="was not taken; call `drain"):
            for _ in range(10):
                mq.send_soon("t", b"x" * 100)


async def test_a_cancelled_message_is_not_tried_again(peer):
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer) as mq:
        sending = asyncio.ensure_future(mq.send("t", b"x"))
        await until(lambda: peer.sent)
        sending.cancel()
        for session in peer.sessions:
            session.close()
        await until(lambda: not mq.unanswered)
    assert len(peer.sent) == 1


@pytest.mark.covers("S-ROUTE-05")
async def test_an_unknown_topic_is_an_error_without_a_template(peer):
    peer.brokers = {"broker-a": peer.address}
    async with client(peer) as mq:
        with pytest.raises(NoRoute, match="create the topic"):
            await mq.send("unknown", b"x")


@pytest.mark.covers("S-ROUTE-09")
async def test_a_topic_that_takes_no_messages_is_an_error(peer):
    peer.has("t", perm=4)
    async with client(peer) as mq:
        for options in ({}, {"fifo": "k"}):
            with pytest.raises(NoRoute, match="none of its queues takes messages"):
                await mq.send("t", b"x", **options)


@pytest.mark.parametrize("options", [{}, {"fifo": "k"}, {"queue": MessageQueue("t", "nowhere", 0)}])
async def test_thousands_that_fail_at_once_do_so_one_by_one(peer, options):
    peer.has("t", perm=4)
    async with client(peer, window=2000, timeout_s=0.1) as mq:
        futures = [mq.send_soon("t", b"x", **options) for _ in range(5000)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(result, NoRoute | SendFailed) for result in results)
        assert mq.unanswered == 0


async def test_ordered_messages_that_were_given_up_do_not_hold_up_others(peer):
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer, timeout_s=0.3) as mq:
        futures = [mq.send_soon("t", b"%d" % number, fifo="k") for number in range(4)]
        await until(lambda: peer.sent)
        futures[1].cancel()
        futures[2].cancel()
        assert (await futures[3]).offset == 7
        assert [command.body for command in peer.sent] == [b"0", b"3"]
        assert isinstance(futures[0].exception(), SendFailed)


async def test_queues_and_brokers_take_turns(peer):
    async with Scripted("broker-b") as other, client(peer) as mq:
        peer.has("t", queues=2, others={other.name: other.address})
        for _ in range(8):
            await mq.send("t", b"x")
        assert sorted(queue_ids(peer)) == sorted(queue_ids(other)) == [0, 0, 1, 1]


@pytest.mark.covers("S-PROD-15")
@pytest.mark.parametrize(("settings", "is_avoided"), [({}, False), ({"avoid_slow_brokers": True}, True)])
async def test_a_broker_that_failed_is_left_alone_if_wanted(peer, settings, is_avoided):
    async with Scripted("broker-b") as other, client(peer, timeout_s=2, **settings) as mq:
        peer.has("t", queues=2, others={other.name: other.address})
        other.script(SEND, Reply(ResponseCode.SYSTEM_ERROR))
        for _ in range(8):
            await mq.send("t", b"x")
        assert (len(other.sent) == 1) == is_avoided


async def test_a_broker_is_not_blamed_for_the_time_that_another_took(peer):
    """A second attempt is as slow as it was itself, not as both were together."""
    clock = ManualClock()
    async with Scripted("broker-b") as other, client(peer, clock=clock, avoid_slow_brokers=True) as mq:
        peer.has("t", queues=1, others={other.name: other.address})
        await mq.send("t", b"first")
        await mq.send("t", b"second")
        for each in (peer, other):
            each.script(SEND, None)
        future = mq.send_soon("t", b"x")
        await until(lambda: len(peer.sent) + len(other.sent) == 3)
        slow, quick = (peer, other) if len(peer.sent) == 2 else (other, peer)
        await clock.advance(2.0)
        quick.script_anew(SEND)
        for session in slow.sessions:
            session.close()
        await future
        choice = mq._producer._send_queue._slow_brokers
        assert choice.is_usable(quick.name, clock.monotonic())
        assert not choice.is_usable(slow.name, clock.monotonic())
        await clock.advance(29)
        for _ in range(4):
            await mq.send("t", b"x")
        assert len(slow.sent) == 2
        await clock.advance(1)
        for _ in range(4):
            await mq.send("t", b"x")
        assert len(slow.sent) == 4, "it has come back"


async def test_a_broker_that_cannot_be_reached_is_left_alone_too(peer):
    async with client(peer, avoid_slow_brokers=True, timeout_s=2) as mq:
        peer.has("t", queues=2, others={"broker-b": NOBODY})
        for _ in range(4):
            await mq.send("t", b"x")
        choice = mq._producer._send_queue._slow_brokers
        assert not choice.is_usable("broker-b", mq._network.clock.monotonic())
        assert choice.is_usable("broker-a", mq._network.clock.monotonic())


async def test_when_all_are_avoided_another_than_the_one_that_failed_just_now_is_asked(peer):
    async with Scripted("broker-b") as other, client(peer, avoid_slow_brokers=True, timeout_s=2) as mq:
        peer.has("t", queues=2, others={other.name: other.address})
        for each in (peer, other):
            each.script(SEND, *[Reply(ResponseCode.SYSTEM_ERROR)] * 2)
        with pytest.raises(SendFailed):
            await mq.send("t", b"x")
        assert sorted([len(peer.sent), len(other.sent)]) == [1, 2]


async def test_one_way_messages_wait_for_no_answer(peer):
    peer.has("t")
    async with client(peer) as mq:
        mq.send_nowait("t", b"1")
        mq.send_nowait("t", b"2")
        await until(lambda: len(peer.sent) == 2)
        assert all(command.is_oneway for command in peer.sent)


async def test_after_the_end_nothing_is_sent(peer):
    peer.has("t")
    async with client(peer) as mq:
        pass
    with pytest.raises(ClientClosed):
        await mq.send("t", b"x")


async def test_leaving_waits_for_what_is_in_flight(peer):
    peer.has("t")
    async with client(peer) as mq:
        futures = [mq.send_soon(Message("t", b"x")) for _ in range(300)]
    assert all(future.done() and future.exception() is None for future in futures)


async def test_leaving_by_an_error_does_not_wait(peer):
    peer.has("t")
    peer.script(SEND, None)
    with pytest.raises(LookupError):
        async with Client(peer.address) as mq:
            future = mq.send_soon("t", b"x")
            await until(lambda: peer.sent)
            raise LookupError
    with pytest.raises(SendFailed):
        await future


# The window ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{"fifo": 5}, {"queue": "t"}, {"tag": 5}, {"timeout_s": 0}, {"body": 5}])
async def test_what_cannot_be_sent_takes_no_place_in_the_window(peer, arguments):
    peer.has("t")
    async with client(peer, window=1) as mq:
        for send in (mq.send_soon, mq.send):
            with pytest.raises((InvalidMessage, ConfigError)):
                await send(**{"topic": "t", "body": b"x", **arguments})
        assert mq.unanswered == 0
        assert (await mq.send("t", b"x")).offset == 7


async def test_a_client_that_was_not_entered_keeps_no_place_taken(peer):
    mq = connect(peer.address, settings=ProducerSettings(window=1))
    for send in (mq.send_soon, mq.send_nowait):
        with pytest.raises(ClientClosed, match="inside its `with` block"):
            send("t", b"x")
    assert mq.unanswered == 0
    peer.has("t")
    async with mq:
        assert (await mq.send("t", b"x")).offset == 7


async def test_room_that_the_first_sleeper_does_not_use_is_the_next_ones(peer):
    """Woken one by one, the second would sleep for ever: the first one sends nothing whose answer could wake it."""
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer, window=1, timeout_s=0.2, retries=0) as mq:
        first = mq.send_soon("t", b"1")
        await until(lambda: peer.sent)
        drained = [asyncio.ensure_future(mq.drain()) for _ in range(3)]
        with pytest.raises(SendFailed):
            await first
        _, pending = await asyncio.wait(drained, timeout=5)
        assert not pending


async def test_who_sleeps_before_a_refused_message_does_not_hold_up_the_next_send(peer):
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer, window=1, timeout_s=0.2, retries=0, max_bytes=10) as mq:
        sends = [asyncio.ensure_future(mq.send("t", b"x" * size)) for size in (1, 11, 2)]
        _, pending = await asyncio.wait(sends, timeout=5)
        assert not pending
        first, second, third = (each.exception() for each in sends)
        assert isinstance(first, SendFailed) and isinstance(second, MessageTooLarge) and third is None


async def test_sleepers_are_woken_in_their_order_and_who_comes_later_does_not_pass_them(peer):
    peer.has("t")
    peer.script(SEND, *[None] * 4)
    async with client(peer, window=4, timeout_s=0.2, retries=0) as mq:
        futures = [mq.send_soon("t", b"0") for _ in range(4)]
        woken: list[int] = []

        async def one(number: int) -> None:
            await mq.drain()
            woken.append(number)
            mq.send_soon("t", b"%d" % number)

        async with asyncio.TaskGroup() as tasks:
            for number in range(40):
                tasks.create_task(one(number))
            await asyncio.wait(futures)
        assert woken == list(range(40))
        for future in futures:
            future.exception()


async def test_gathered_sends_of_one_key_are_stored_in_their_order(peer):
    peer.has("t")
    async with client(peer) as mq:
        await asyncio.gather(*[mq.send("t", b"%d" % number, fifo="k") for number in range(1500)])
    assert [int(command.body) for command in peer.sent] == list(range(1500))


async def test_awaited_sends_are_never_refused_however_many_wait(peer):
    peer.has("t")
    async with client(peer, window=1, waiting_bytes=2000) as mq:
        results = await asyncio.gather(*[mq.send("t", b"%d" % number, fifo="k") for number in range(50)])
    assert len(results) == 50
    assert [int(command.body) for command in peer.sent] == list(range(50))


async def test_closing_wakes_who_drains_and_leaves_nothing_unanswered(peer):
    peer.has("t")
    peer.script(SEND, None)
    with pytest.raises(LookupError):
        async with client(peer, window=2) as mq:
            futures = [
                mq.send_soon("t", b"1", fifo="k"),
                mq.send_soon("t", b"2", fifo="k"),
                mq.send_soon("t", b"3"),
            ]
            draining = asyncio.ensure_future(mq.drain())
            await until(lambda: peer.sent)
            raise LookupError
    await asyncio.wait_for(draining, 1)
    await asyncio.wait(futures)
    assert mq.unanswered == 0
    failures = [future.exception() for future in futures]
    assert isinstance(failures[0], SendFailed) and failures[0].is_in_doubt
    assert [type(failure) for failure in failures[1:]] == [ClientClosed] * 2


# Nobody there -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [{"fifo": "k"}, {"queue": MessageQueue("t", "broker-a", 0)}])
async def test_ordered_messages_wait_for_a_broker_that_restarts_and_keep_their_order(peer, ordered):
    async with Scripted("broker-a") as broker:
        peer.routes["t"] = broker_route(broker)
        port = int(broker.address.rpartition(":")[2])
        async with client(peer, timeout_s=10) as mq:
            await mq.send("t", b"before", **ordered)
            await broker.__aexit__()
            await until(lambda: mq._network.brokers.open_session(f"127.0.0.1:{port}") is None)
            futures = [mq.send_soon("t", b"%d" % number, **ordered) for number in range(20)]
            await until(lambda: mq._network._pool._backoffs)
            restarted = Scripted("broker-a")
            restarted._server.port = port
            async with restarted:
                await asyncio.gather(*futures)
                assert [int(command.body) for command in restarted.sent] == list(range(20))


async def test_ordered_messages_to_a_broker_that_stays_away_fail_together(peer):
    peer.has("t")
    peer.routes["t"].broker_datas[0].broker_addrs[0] = NOBODY
    async with client(peer, timeout_s=0.5) as mq:
        begin = asyncio.get_running_loop().time()
        futures = [mq.send_soon("t", b"x", fifo="k") for _ in range(50)]
        failures = await asyncio.gather(*futures, return_exceptions=True)
        assert asyncio.get_running_loop().time() - begin < 5
    for failure in failures:
        assert isinstance(failure, SendFailed) and not failure.is_in_doubt
        assert "was not sent: cannot connect to 127.0.0.1:1" in str(failure) and "twice" not in str(failure)


async def test_what_may_be_stored_is_not_sent_again_in_order(peer):
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer) as mq:
        future = mq.send_soon("t", b"x", fifo="k")
        await until(lambda: peer.sent)
        for session in peer.sessions:
            session.close()
        with pytest.raises(SendFailed, match="must expect it twice"):
            await future
    assert len(peer.sent) == 1


@pytest.mark.parametrize("options", [{}, {"fifo": "k"}])
async def test_a_send_waits_for_the_name_server(peer, options):
    port = peer._server.port
    await peer.__aexit__()
    async with connect(f"127.0.0.1:{port}", settings=ProducerSettings(timeout_s=10)) as mq:
        futures = [mq.send_soon("t", b"%d" % number, **options) for number in range(5)]
        await until(lambda: mq._network._pool._backoffs)
        assert not any(future.done() for future in futures)
        back = Scripted()
        back._server.port = port
        async with back:
            back.has("t")
            await asyncio.gather(*futures)
            assert sum(messages_in(command) for command in back.sent) == 5


async def test_without_a_name_server_the_error_names_it_when_the_time_is_over():
    async with connect(NOBODY, settings=ProducerSettings(timeout_s=0.3)) as mq:
        begin = asyncio.get_running_loop().time()
        late = mq.send_soon("t", b"x", timeout_s=1.0)
        with pytest.raises(SendFailed, match=r"was not sent: cannot ask name server 127\.0\.0\.1:1") as caught:
            await mq.send("t", b"x")
        assert 0.3 <= asyncio.get_running_loop().time() - begin < 0.9 and not late.done()
        assert isinstance(caught.value.cause, NameServerUnreachable) and not caught.value.is_in_doubt
        assert "brokerIP1" not in str(caught.value) and "twice" not in str(caught.value)
        with pytest.raises(SendFailed):
            await late
        assert mq.unanswered == 0


async def test_an_address_that_is_none_fails_the_message_and_not_the_client(peer):
    peer.has("t", others={})
    peer.routes["t"].broker_datas[0].broker_addrs[0] = "a..b:10911"
    async with client(peer, timeout_s=0.3) as mq:
        with pytest.raises(SendFailed, match=r"cannot connect to a\.\.b:10911"):
            await mq.send("t", b"x")
        peer.has("u")
        assert (await mq.send("u", b"x")).offset == 7


async def test_a_broker_that_comes_back_empty_at_another_address_is_found_at_once(peer):
    async with Scripted("broker-a") as before, Scripted("broker-a") as after:
        peer.routes["t"] = broker_route(before)
        async with client(peer, timeout_s=10) as mq:
            await mq.send("t", b"before")
            await before.__aexit__()
            await until(lambda: mq._network.brokers.open_session(before.address) is None)
            peer.routes.clear()
            peer.brokers = {"broker-a": after.address}
            begin = asyncio.get_running_loop().time()
            await asyncio.gather(mq.send("t", b"x"), mq.send("t", b"x", fifo="k"))
            assert asyncio.get_running_loop().time() - begin < 5
        assert len(after.sent) == 2
