import asyncio
import logging
from datetime import timedelta

import pytest
from msgspec.structs import replace

from sparrowmq.client.consuming.received_message import Handling, Outcome, ReceivedMessage, SettleOptions, ack_all
from sparrowmq.client.consuming.retry import FailureRules, Reject, Retry
from sparrowmq.errors import ConfigError, InvalidMessage
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage

QUEUE = MessageQueue("t", "a", 1)


def stored(body: bytes = b'{"a":1}', topic: str = "t", sys_flag: int = 0, **properties: str) -> StoredMessage:
    return StoredMessage(
        topic, 1, 5, 1000, 200, 0, 0, sys_flag, 1, "10.0.0.1:5", 2, "10.0.0.2:10911", 0, 0, body, properties
    )


def message_at(offset: int, size: int = 200) -> ReceivedMessage:
    """A message that no queue has yet."""
    return ReceivedMessage(replace(stored(), queue_offset=offset, store_size=size), QUEUE)


class Panic(BaseException):
    """As Rust extensions raise it."""


class Told:
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def __call__(self, message: ReceivedMessage, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def message(told) -> ReceivedMessage:
    return ReceivedMessage(stored(), QUEUE, told)


def test_its_fate_is_told_once(message, told, caplog):
    assert message.is_unsettled
    message.retry(delay="30s")
    message.ack()
    assert not caplog.messages
    message.retry()
    message.reject()
    assert [each.split(" is not ")[1][:9] for each in caplog.messages] == ["retried: ", "rejected:"]
    assert told.outcomes == [Outcome.RETRY] and message._settle_options.delay_level == 4 and not message.is_unsettled


def test_a_pulled_message_has_nobody_to_tell():
    message = ReceivedMessage(stored(), QUEUE)
    message.ack()
    message.retry()
    assert not message.is_unsettled


async def test_a_block_that_ends_well_acknowledges(message, told):
    async with message.process():
        assert not told.outcomes
    assert told.outcomes == [Outcome.DONE]


@pytest.mark.parametrize(("delay", "level"), [(None, 0), ("10s", 3), (timedelta(minutes=1), 5)])
def test_the_delay_of_a_retry_is_written_as_that_of_a_send(message, delay, level):
    message.retry(delay)
    assert message._settle_options.delay_level == level


def test_a_retry_takes_a_level_by_its_name_and_no_bare_number(message, told):
    with pytest.raises(InvalidMessage, match="could be seconds or a level"):
        message.retry(30)
    with pytest.raises(ConfigError, match="suspend_s='1'"):
        message.retry(suspend_s="1")
    assert message.is_unsettled and not told.outcomes
    message.retry(delay_level=4)
    assert message._settle_options.delay_level == 4


def test_a_delay_that_is_no_level_is_kept_exactly(message, told):
    message.retry("11s")
    assert (message._settle_options.delay_level, message._settle_options.delay_s, told.outcomes) == (
        0,
        11.0,
        [Outcome.RETRY],
    )


def test_a_delay_that_is_none_is_refused_and_tells_nothing(message, told):
    with pytest.raises(InvalidMessage, match="is not a delay"):
        message.retry("soon")
    assert message.is_unsettled and not told.outcomes


def test_a_rejected_message_has_the_reason_and_is_settled_once(message, told):
    with pytest.raises(ConfigError, match="reason=5: give a text"):
        message.reject(5)
    message.reject("no such customer")
    message.retry()
    assert told.outcomes == [Outcome.REJECTED] and message._settle_options.reason == "no such customer"


@pytest.mark.parametrize("error", [Reject("bad"), ExceptionGroup("", [Reject("bad")])])
async def test_a_block_that_raises_reject_rejects_and_the_loop_goes_on(message, told, caplog, error):
    async with message.process():
        raise error
    assert told.outcomes == [Outcome.REJECTED] and message._settle_options.reason == "bad"
    assert "bad" in caplog.text and "Traceback" not in caplog.text


def invalid(cause: Exception) -> InvalidMessage:
    """The error of a body that does not fit its handler."""
    error = InvalidMessage("unfit")
    error.__cause__ = cause
    return error


RULES = Retry("1s", 15, never=[LookupError])


@pytest.mark.parametrize(
    ("error", "failures", "outcome", "options"),
    [
        (ValueError("x"), 0, Outcome.RETRY, SettleOptions(delay_level=1)),
        (ValueError("x"), 1, Outcome.RETRY, SettleOptions(delay_s=15.0)),
        (ValueError("x"), 2, Outcome.REJECTED, SettleOptions(reason="failed 3 times: ValueError: x")),
        (KeyError("x"), 0, Outcome.REJECTED, SettleOptions(reason="KeyError: 'x'")),
        (ExceptionGroup("", [KeyError("x")]), 0, Outcome.REJECTED, SettleOptions(reason="KeyError: 'x'")),
        (invalid(KeyError("x")), 0, Outcome.REJECTED, SettleOptions(reason="InvalidMessage: unfit")),
        (Reject("bad"), 0, Outcome.REJECTED, SettleOptions(reason="bad")),
    ],
)
async def test_the_rules_for_retries_decide_after_a_failure(told, caplog, error, failures, outcome, options):
    message = ReceivedMessage(stored(), QUEUE, told)
    message.reconsume_times = failures
    async with Handling((message,), swallow=True, rules=FailureRules("g", "shop.bill", RULES, RULES.times)):
        raise error
    assert (told.outcomes, message._settle_options) == ([outcome], options)
    again, dead = "it comes again in" in caplog.text, "goes to the dead-letter queue" in caplog.text
    assert caplog.text.count("handler shop.bill of group g ") == 1
    if not isinstance(error, Reject):
        assert (again, dead) == (outcome is Outcome.RETRY, outcome is Outcome.REJECTED)


def test_time_that_is_given_adds_up(message):
    with pytest.raises(ConfigError, match="seconds=0: give seconds above 0"):
        message.extend(0)
    message.extend(10)
    message.extend(5)
    assert message._settle_options.extended_s == 15
    message.ack()
    message.extend(5)
    assert message._settle_options.extended_s == 15


async def test_a_block_that_raises_is_retried_and_raises(message, told, caplog):
    with pytest.raises(ValueError, match="broken"):
        async with message.process():
            raise ValueError("broken")
    assert told.outcomes == [Outcome.RETRY] and not caplog.text


@pytest.mark.covers("S-CONS-19")
async def test_what_a_block_raises_can_be_swallowed_and_is_logged(message, told, caplog):
    with caplog.at_level(logging.ERROR):
        async with message.process(swallow=True):
            raise ValueError("broken")
    assert told.outcomes == [Outcome.RETRY]
    assert "broken" in caplog.text


async def test_the_log_does_not_promise_another_delivery_of_an_acknowledged_message(message, told, caplog):
    async with message.process(swallow=True):
        message.ack()
        raise LookupError("late")
    assert told.outcomes == [Outcome.DONE]
    assert "it was settled before, so that changes nothing" in caplog.text


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Panic(), Outcome.RETRY),
        (BaseExceptionGroup("g", [Panic(), LookupError()]), Outcome.RETRY),
        (BaseExceptionGroup("g", [Panic(), SystemExit()]), Outcome.CANCELLED),
        (GeneratorExit(), Outcome.CANCELLED),
        (KeyboardInterrupt(), Outcome.CANCELLED),
    ],
)
def test_what_ends_neither_task_nor_program_is_a_failure(message, told, error, outcome):
    with pytest.raises(type(error)), message.process():
        raise error
    assert told.outcomes == [outcome]


async def test_what_the_block_said_itself_counts(message, told):
    async with message.process():
        message.retry()
    assert told.outcomes == [Outcome.RETRY]


async def test_a_block_that_runs_out_of_time_hands_its_message_back(message, told):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0), message.process():
            await asyncio.Event().wait()
    assert told.outcomes == [Outcome.CANCELLED] and not message.is_unsettled


async def test_a_cancellation_that_is_not_ours_is_a_failure(message, told):
    with pytest.raises(asyncio.CancelledError):
        async with message.process():
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await cancelled
    assert told.outcomes == [Outcome.RETRY]


def test_blocking_code_has_the_same(message, told):
    with message.process():
        pass
    assert told.outcomes == [Outcome.DONE]


def test_blocking_code_may_fail_and_be_interrupted_too(told):
    with pytest.raises(ValueError, match="broken"), ReceivedMessage(stored(), QUEUE, told).process():
        raise ValueError("broken")
    with ReceivedMessage(stored(), QUEUE, told).process(swallow=True):
        raise ValueError("broken")
    with pytest.raises(KeyboardInterrupt), ReceivedMessage(stored(), QUEUE, told).process():
        raise KeyboardInterrupt
    assert told.outcomes == [Outcome.RETRY, Outcome.RETRY, Outcome.CANCELLED]


async def test_its_fate_can_be_told_from_another_thread(message, told):
    message._settle_in(asyncio.get_running_loop())
    await asyncio.to_thread(message.ack)
    await asyncio.sleep(0)
    assert told.outcomes == [Outcome.DONE]


def test_a_fate_that_is_told_as_the_loop_ends_reaches_nobody(message, told, ending_loop):
    message._settle_in(ending_loop)
    message.ack()
    assert told.outcomes == []


def test_messages_of_other_owners_are_acknowledged_one_by_one(told):
    messages = [ReceivedMessage(stored(), QUEUE, told) for _ in range(3)]
    messages[0].retry()
    ack_all([*messages, ReceivedMessage(stored(), QUEUE)])
    assert told.outcomes == [Outcome.RETRY, Outcome.DONE, Outcome.DONE]
