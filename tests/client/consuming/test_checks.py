"""A broker asks about transactions; what the client's checks say goes back to it."""

import asyncio
import threading

import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import ConfigError, InvalidName
from sparrowmq.protocol import hosts
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.requests.headers import CheckTransactionState, EndTransaction
from sparrowmq.testing import ManualClock
from tests.client.conftest import until

HOST = hosts.pack("127.0.0.1:10911")
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def mq(peer, clock):
    peer.has("t")
    peer.usual[RequestCode.END_TRANSACTION] = lambda _: None
    async with connect(peer.address, clock=clock, group="tellers") as client:
        yield client


@pytest.fixture
async def ask(peer, mq):
    """Ask about a transaction, as a broker does, on the connection that the client made for a send."""
    await mq.send("t", b"so that it connects")

    def ask(number, group="tellers"):
        properties = Properties(render({"UNIQ_KEY": f"u{number}", "PGROUP": group, "TRAN_MSG": "true"}))
        entry = Entry("t", 2, b"%d" % number, properties, 0, HOST)
        body = record.encode(entry, Placed(1000 + number, number, 0, HOST), crc=False)
        header = CheckTransactionState(number, 1000 + number, None, f"u{number}", f"u{number}", "00")
        peer.sessions[-1].tell(header, body)

    return ask


def told(peer):
    """How the client said that each transaction ended, in the order of its answers."""
    commands = peer.requests(RequestCode.END_TRANSACTION)
    return [(each.header(EndTransaction).msg_id, each.header(EndTransaction).commit_or_rollback) for each in commands]


@pytest.mark.parametrize(
    ("known", "expected"),
    [(True, COMMIT), (False, ROLLBACK), (None, UNKNOWN), ("yes", UNKNOWN), (1, UNKNOWN)],
)
async def test_what_a_check_says_is_told_one_way_and_what_is_no_answer_is_unknown(peer, mq, ask, known, expected):
    @mq.check()
    async def check(message):
        assert (message.topic, message.body, message.msg_id) == ("t", b"5", "u5")
        return known

    ask(5)
    await until(lambda: told(peer))
    (end,) = peer.requests(RequestCode.END_TRANSACTION)
    header = end.header(EndTransaction)
    assert (header.commit_or_rollback, header.producer_group) == (expected, "tellers")
    assert (header.tran_state_table_offset, header.commit_log_offset) == (5, 1005)
    assert (header.msg_id, header.transaction_id, header.topic) == ("u5", "u5", "t")
    assert header.from_transaction_check is True and end.is_oneway


@pytest.mark.covers("S-TX-01")
async def test_a_check_that_raises_knows_nothing_and_is_logged(peer, mq, ask, caplog):
    def check(message):
        raise LookupError("no such payment")

    mq.check()(check)
    ask(1)
    await until(lambda: told(peer))
    assert told(peer) == [("u1", UNKNOWN)] and "no such payment" in caplog.text


class Panic(BaseException):
    """As a Rust extension raises it."""


@pytest.mark.parametrize("raised", [Panic("no such payment"), asyncio.CancelledError("no such payment")])
async def test_a_check_that_panics_or_awaits_what_was_cancelled_knows_nothing_and_is_logged(
    peer, mq, ask, caplog, raised
):
    @mq.check()
    async def check(message):
        raise raised

    ask(1)
    await until(lambda: told(peer))
    assert told(peer) == [("u1", UNKNOWN)] and "no such payment" in caplog.text


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_check_whose_own_wait_ran_out_is_logged_as_it_is(peer, mq, ask, caplog, is_async):
    def check(message):
        raise TimeoutError("the bank does not answer")

    async def wait(message):
        check(message)

    mq.check()(wait if is_async else check)
    ask(1)
    await until(lambda: told(peer))
    assert told(peer) == [("u1", UNKNOWN)]
    assert "the bank does not answer" in caplog.text and "has had" not in caplog.text


@pytest.mark.covers("S-TX-03")
async def test_so_many_run_at_once_so_many_wait_and_the_rest_is_left_to_be_asked_again(peer, mq, ask, caplog):
    gate, running, most = asyncio.Event(), 0, 0

    @mq.check(concurrency=2, waiting=3)
    async def check(message):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return True

    for number in range(2):
        ask(number)
    await until(lambda: running == 2)
    for number in range(2, 7):
        ask(number)
    await until(lambda: caplog.text.count("is left to be asked again") == 2)
    gate.set()
    await until(lambda: len(told(peer)) == 5)
    assert most == 2 and sorted(told(peer)) == [(f"u{number}", COMMIT) for number in range(5)]


async def test_a_check_that_takes_too_long_knows_nothing_and_the_next_one_runs(peer, mq, ask, clock):
    @mq.check(concurrency=1, timeout_s=5)
    async def check(message):
        if message.msg_id == "u0":
            await asyncio.sleep(3600)
        return True

    ask(0)
    ask(1)
    await until(lambda: len(clock._timers) > 3)
    await clock.advance(6)
    await until(lambda: len(told(peer)) == 2)
    assert told(peer) == [("u0", UNKNOWN), ("u1", COMMIT)]


async def test_a_blocking_check_that_hangs_keeps_its_thread_alone(peer, mq, ask, clock):
    release, begun = threading.Event(), threading.Event()

    @mq.check(concurrency=1, timeout_s=5)
    def check(message):
        if message.msg_id == "u0":
            begun.set()
            release.wait(60)
        return True

    ask(0)
    ask(1)
    await until(begun.is_set)
    await clock.advance(6)
    await until(lambda: len(told(peer)) == 2)
    release.set()
    assert told(peer) == [("u0", UNKNOWN), ("u1", COMMIT)]


async def test_another_groups_question_is_not_answered(peer, mq, ask, caplog):
    ask(1)
    ask(2, group="others")
    await until(lambda: caplog.text.count("which has no check here") == 2)
    assert told(peer) == []


async def test_a_broker_that_asks_without_end_writes_few_lines_and_none_of_its_own(peer, mq, ask, caplog):
    mq.check()(lambda message: True)
    for number in range(30):
        ask(number, group="no\nERROR all is lost")
    ask(99)
    await until(lambda: told(peer) == [("u99", COMMIT)])
    lines = [line for line in caplog.messages if "no check here" in line]
    assert len(lines) == 20 and "no\\nERROR" in lines[0]


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"waiting": -1}, {"concurrency": True}, {"timeout_s": 0}, {"timeout_s": "5"}],
)
async def test_wrong_settings_are_refused(mq, options):
    with pytest.raises(ConfigError):
        mq.check(**options)


async def test_wrong_checks_are_refused(mq):
    with pytest.raises(ConfigError, match="cannot be called"):
        mq.check()(5)
    mq.check()(bool)
    with pytest.raises(ConfigError, match="has a check already"):
        mq.check()(bool)
    for group in ("", "a b"):
        with pytest.raises((ConfigError, InvalidName, TypeError)):
            mq.check(group)
