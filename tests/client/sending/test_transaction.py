"""Transactions of our client on our own broker; the broker's time is turned by hand."""

import asyncio
from itertools import pairwise

import pytest

import sparrowmq.sync
from sparrowmq.client.client import connect
from sparrowmq.client.sending.send_result import SendStatus
from sparrowmq.errors import ConfigError, InvalidMessage, SendFailed, TransactionEnded
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages.message import Message
from sparrowmq.protocol.requests.headers import EndTransaction, SendMessageV2
from sparrowmq.testing import Cluster, ManualClock
from sparrowmq.testing.background import BackgroundCluster
from tests.client.conftest import until
from tests.client.scripted import stored


class Books:
    """What a program's database would know, and what brokers asked it."""

    def __init__(self):
        self.known = {}
        self.asked = []

    async def check(self, message):
        self.asked.append(message)
        return self.known.get(message.msg_id)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def cluster(tmp_path, clock):
    async with Cluster(tmp_path / "cluster", clock=clock) as started:
        yield started


@pytest.fixture
def books():
    return Books()


@pytest.fixture
async def mq(cluster, clock, books):
    async with connect(cluster.namesrv, clock=clock, group="tellers") as client:
        client.check()(books.check)
        yield client


async def received(mq, count, topic="orders"):
    """The first messages of a topic, which must all come."""
    async with mq.subscribe(topic, group="readers", start="earliest") as consumer:
        return [await asyncio.wait_for(anext(aiter(consumer)), 10) for _ in range(count)]


def open_now(cluster):
    return sum(len(broker_handler(broker)._transactions.open_transactions) for broker in cluster.brokers)


def broker_handler(broker):
    return broker._server.dispatch._routes[RequestCode.END_TRANSACTION][1].__self__


@pytest.mark.covers("S-TX-01")
@pytest.mark.covers("S-TX-10")
@pytest.mark.covers("S-TX-02")
@pytest.mark.covers("S-PROD-01")
async def test_a_block_left_in_order_commits_and_one_left_by_an_error_rolls_back(cluster, mq):
    async with mq.transaction("orders", b"one", tag="paid", keys="k") as first:
        assert first.result.status is SendStatus.OK and first.result.offset == 0
    with pytest.raises(ZeroDivisionError):
        async with mq.transaction("orders", b"two"):
            raise ZeroDivisionError
    async with mq.transaction(Message("orders", b"three")) as third:
        pass
    await until(lambda: open_now(cluster) == 0)
    messages = await received(mq, 2)
    assert {each.body: each.msg_id for each in messages} == {b"one": first.msg_id, b"three": third.msg_id}
    (one,) = [each for each in messages if each.body == b"one"]
    assert (one.tag, one.keys) == ("paid", ["k"])
    assert one.properties["TRAN_MSG"] == "true" and one.properties["PGROUP"] == "tellers"


@pytest.mark.covers("S-TX-09")
@pytest.mark.covers("S-TX-04")
async def test_a_broker_that_was_told_nothing_asks_any_client_of_the_group(cluster, clock, books):
    async with connect(cluster.namesrv, clock=clock, group="tellers") as gone:
        gone.check()(books.check)
        async with gone.transaction("orders", b"paid") as transaction:
            await transaction.unknown()
            books.known[transaction.msg_id] = True
    strange = Books()
    async with (
        connect(cluster.namesrv, client_id="another", clock=clock, group="tellers") as mq,
        connect(cluster.namesrv, client_id="stranger", clock=clock, group="strangers") as stranger,
    ):
        mq.check()(books.check)
        stranger.check("strangers")(strange.check)
        await stranger.send("elsewhere", b"so that the broker knows it")
        await mq.send("elsewhere", b"so that the broker knows it")
        await clock.advance(5)
        await mq.send("elsewhere", b"so that a question would have come before the answer")
        assert not books.asked
        await clock.advance(2)
        await until(lambda: books.asked)
        assert not strange.asked
        (message,) = books.asked
        assert (message.topic, message.body, message.msg_id) == ("orders", b"paid", transaction.msg_id)
        await until(lambda: open_now(cluster) == 0)
        assert [each.body for each in await received(mq, 1)] == [b"paid"]


@pytest.mark.slow
@pytest.mark.covers("S-TX-07")
@pytest.mark.covers("S-TX-06")
@pytest.mark.covers("S-TX-05")
async def test_it_is_asked_about_fifteen_times_a_minute_apart_and_then_put_aside(cluster, clock, mq, books):
    async with mq.transaction("orders", b"paid") as transaction:
        await transaction.unknown()
    times: list[int] = []
    for second in range(6 + 15 * 60 + 2):
        await clock.advance(1)
        while len(times) < len(books.asked):
            times.append(second)
    await until(lambda: open_now(cluster) == 0)
    assert len(times) == 15
    assert all(59 <= after - before <= 61 for before, after in pairwise(times)), times
    (broker,) = cluster.brokers
    assert broker_handler(broker)._store.queues.obtain("TRANS_CHECK_MAX_TIME_TOPIC", 0).end.value == 1


async def test_a_cancelled_block_says_nothing_and_the_check_decides(cluster, clock, mq, books):
    began = asyncio.Event()

    async def pay():
        async with mq.transaction("orders", b"paid") as transaction:
            books.known[transaction.msg_id] = True
            began.set()
            await asyncio.sleep(3600)

    paying = asyncio.create_task(pay())
    await began.wait()
    paying.cancel()
    await asyncio.wait([paying])
    assert open_now(cluster) == 1
    await clock.advance(7)
    await until(lambda: open_now(cluster) == 0)
    assert [each.body for each in await received(mq, 1)] == [b"paid"]


async def test_an_end_can_be_told_inside_the_block_once(cluster, mq):
    async with mq.transaction("orders", b"one") as transaction:
        await transaction.commit()
        await transaction.commit()
        with pytest.raises(TransactionEnded, match="is committed already"):
            await transaction.rollback()
    with pytest.raises(ValueError):
        async with mq.transaction("orders", b"two") as transaction:
            await transaction.commit()
            raise ValueError("after the end")
    async with mq.transaction("orders", b"three") as transaction:
        await transaction.rollback()
    await until(lambda: open_now(cluster) == 0)
    assert {each.body for each in await received(mq, 2)} == {b"one", b"two"}


async def test_a_transaction_is_entered_once_and_has_no_id_before(mq):
    transaction = mq.transaction("orders", b"one")
    with pytest.raises(TransactionEnded, match="has not begun"):
        transaction.msg_id  # noqa: B018
    async with transaction:
        pass
    with pytest.raises(TransactionEnded, match="entered once"):
        async with transaction:
            pass


async def test_a_group_without_check_cannot_begin_one(cluster):
    async with connect(cluster.namesrv, group="tellers") as mq:
        with pytest.raises(ConfigError, match=r"@mq.check\('tellers'\)"):
            mq.transaction("orders", b"one")


@pytest.mark.covers("S-TX-08")
async def test_what_cannot_be_sent_in_a_transaction_is_told_at_once(mq):
    with pytest.raises(InvalidMessage, match="cannot be delayed"):
        mq.transaction(Message("orders", b"one", delay_level=3))
    with pytest.raises(TypeError):
        mq.transaction("orders", b"one", delay="10s")
    for topic, body in (("orders", b""), ("RMQ_SYS_TRANS_HALF_TOPIC", b"x"), ("orders", None)):
        with pytest.raises(InvalidMessage):
            mq.transaction(topic, body)


async def test_another_producer_has_a_check_of_its_own(cluster, clock, mq, books):
    asked = []

    def check(message):
        asked.append(message)
        return False

    producer = mq.producer("payments", check=check)
    async with producer.transaction("orders", b"one") as transaction:
        await transaction.unknown()
    await clock.advance(7)
    await until(lambda: open_now(cluster) == 0)
    assert [each.body for each in asked] == [b"one"] and not books.asked
    with pytest.raises(ConfigError, match="has a check already"):
        mq.check("payments")(check)


async def test_in_a_namespace_topics_and_groups_have_their_short_names(cluster, clock):
    books = Books()
    async with connect(cluster.namesrv, namespace="shop", clock=clock, group="tellers") as mq:
        mq.check()(books.check)
        async with mq.transaction("orders", b"one") as transaction:
            await transaction.unknown()
            books.known[transaction.msg_id] = True
        await clock.advance(7)
        await until(lambda: open_now(cluster) == 0)
        assert [each.topic for each in books.asked] == ["orders"]
        assert [each.body for each in await received(mq, 1)] == [b"one"]


# What goes over the wire ---------------------------------------------------------------------------------------------


@pytest.fixture
async def sender(peer):
    peer.has("t")
    peer.usual[RequestCode.END_TRANSACTION] = lambda _: None
    async with connect(peer.address, group="tellers") as client:
        client.check()(lambda message: None)
        yield client


async def test_the_requests_are_those_of_java(peer, sender):
    async with sender.transaction("t", b"one") as transaction:
        pass
    (half,) = peer.sent
    header = half.header(SendMessageV2)
    assert header.sys_flag == 4
    assert "TRAN_MSG\x01true\x02PGROUP\x01tellers\x02" in header.properties
    await until(lambda: peer.requests(RequestCode.END_TRANSACTION))
    (end,) = peer.requests(RequestCode.END_TRANSACTION)
    told = end.header(EndTransaction)
    assert (told.commit_or_rollback, told.tran_state_table_offset, told.msg_id) == (8, 7, transaction.msg_id)
    assert told.from_transaction_check is False and end.is_oneway


async def test_a_half_message_that_is_less_safe_than_promised_is_rolled_back(peer, sender):
    peer.script(RequestCode.SEND_MESSAGE_V2, stored(10))
    with pytest.raises(SendFailed, match="FLUSH_DISK_TIMEOUT"):
        async with sender.transaction("t", b"one"):
            raise AssertionError("the block must not begin")
    await until(lambda: peer.requests(RequestCode.END_TRANSACTION))
    (end,) = peer.requests(RequestCode.END_TRANSACTION)
    assert end.header(EndTransaction).commit_or_rollback == 12


async def test_a_broker_that_is_gone_is_not_told_and_the_block_goes_on(peer, sender, caplog):
    async with sender.transaction("t", b"one"):
        await peer._server.stop()
        await until(lambda: sender._network.brokers.open_session(peer.address) is None)
    assert "does not get the message that" in caplog.text


# Blocking ------------------------------------------------------------------------------------------------------------


def test_the_blocking_twin_commits_and_rolls_back(tmp_path):
    with (
        BackgroundCluster(tmp_path) as cluster,
        sparrowmq.sync.connect(cluster.namesrv, group="tellers") as mq,
    ):

        @mq.check()
        def check(message):
            return None

        with mq.transaction("orders", b"one") as transaction:
            assert len(transaction.msg_id) == 32 and transaction.result.offset == 0
        with pytest.raises(ZeroDivisionError), mq.transaction("orders", b"two"):
            raise ZeroDivisionError
        with mq.producer("payments", check=check).transaction("orders", b"three") as third:
            third.rollback()
        with mq.transaction("orders", b"four") as fourth:
            fourth.commit()
        with mq.subscribe("orders", group="readers", start="earliest") as orders:
            messages = [orders.take()[0], orders.take()[0]]
        assert {each.body for each in messages} == {b"one", b"four"}


def test_ctrl_c_in_a_blocking_transaction_leaves_it_to_the_check(tmp_path):
    with (
        BackgroundCluster(tmp_path) as cluster,
        sparrowmq.sync.connect(cluster.namesrv, group="tellers") as mq,
    ):
        mq.check()(lambda message: None)
        with pytest.raises(KeyboardInterrupt), mq.transaction("orders", b"one") as transaction:
            raise KeyboardInterrupt
        with pytest.raises(TransactionEnded, match="left open"):
            transaction.commit()


@pytest.mark.parametrize("namespace", ["", "shop"])
def test_programs_that_name_no_group_have_no_transactions(namespace):
    """They would answer for each other: each is asked about half of the other's transactions."""
    mq = connect("127.0.0.1:1", namespace=namespace)
    asks = (
        lambda: mq.transaction("orders", b"paid"),
        lambda: mq.check()(lambda message: True),
        lambda: mq.check("SPARROWMQ_PRODUCER")(lambda message: True),
    )
    for ask in asks:
        with pytest.raises(ConfigError, match=r"needs a producer group of its own.*group=\"payments\""):
            ask()
