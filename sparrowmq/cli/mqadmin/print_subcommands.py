"""Messages of queues: printMsg, printMsgByQueue, consumeMessage.

Source: PrintMessageSubCommand, PrintMessageByQueueCommand and ConsumeMessageCommand, Java 4.9.8.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import Failure, null_failure, number_failure
from sparrowmq.cli.mqadmin.message_printing import (
    FOUND,
    Pulled,
    address_of,
    print_message,
    pull,
    queues_of,
    span_of,
)
from sparrowmq.client.admin.operations import offset_since
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.subscription import ALL

_UTF8: Final = "UTF-8"
_RULE: Final = "-" * 56
_MATCHED_NOTHING: Final = "NO_MATCHED_MSG"
_USUAL_COUNT: Final = 128


async def print_msg(call: Call) -> None:
    charset, shows_body = call.text("c", _UTF8), call.is_true("d", True)

    async def show(queue: MessageQueue) -> None:
        address = await address_of(call, queue)
        begin, end = await _span(call, address, queue)
        call.line("minOffset=%s, maxOffset=%s, %s", begin, end, java.queue_text(queue))
        offset = begin
        while offset < end and (pulled := await _pull(call, address, queue, offset)) is not None:
            offset = pulled.next_offset
            for message in pulled.messages:
                print_message(call, message, charset, shows_body)
            if _is_over(call, queue, pulled):
                break
        call.line(_RULE)

    await call.each(await queues_of(call, call.text("t")), show)


async def print_msg_by_queue(call: Call) -> None:
    queue = MessageQueue(call.text("t"), call.text("a"), call.number("i"))
    address = await address_of(call, queue)
    offset, end = await _span(call, address, queue)
    tags: Counter[str] = Counter()
    while offset < end and (pulled := await _pull(call, address, queue, offset)) is not None:
        offset = pulled.next_offset
        if pulled.status != FOUND:
            break
        tags.update(each.stored.tags for each in pulled.messages if each.stored.tags)
        for message in pulled.messages if call.is_true("p") else ():
            print_message(call, message, call.text("c", _UTF8), call.is_true("d"))
    if call.is_true("f"):
        counts = dict(tags)
        for tag, count in sorted(java.table(counts), key=lambda row: -row[1]):
            call.line("Tag: %-30s Count: %s", tag, count)


async def _pull(call: Call, address: str, queue: MessageQueue, offset: int) -> Pulled | None:
    """Return the next messages that fit -s; None if the pull failed, which is reported."""
    try:
        return await pull(call, address, queue, offset, call.text("s", ALL))
    except Failure as failure:
        call.complain(failure)
        return None


def _is_over(call: Call, queue: MessageQueue, pulled: Pulled) -> bool:
    """Return whether the queue has no more messages; an empty pull is reported."""
    if pulled.status == FOUND:
        return False
    matched_nothing = pulled.status == _MATCHED_NOTHING
    what = "no matched msg" if matched_nothing else "print msg finished"
    call.line("%s %s. status=%s, offset=%s", java.queue_text(queue), what, pulled.status, pulled.next_offset)
    return not matched_nothing


async def _span(call: Call, address: str, queue: MessageQueue) -> tuple[int, int]:
    """Return the offsets to read, by -b and -e."""
    begin, end = await span_of(call, address, queue)
    if call.has("b"):
        begin = await _offset_at(call, address, queue, "b")
    if call.has("e"):
        end = await _offset_at(call, address, queue, "e")
    return begin, end


async def _offset_at(call: Call, address: str, queue: MessageQueue, letter: str) -> int:
    return await offset_since(call, address, queue, _moment(call.text(letter)))


def _moment(text: str) -> int:
    try:
        return java.moment(text)
    except ValueError:
        raise null_failure(f"{text!r} is no time; give milliseconds or yyyy-MM-dd#HH:mm:ss:SSS") from None


# consumeMessage -----------------------------------------------------------------------------------------------------


async def consume_message(call: Call) -> None:
    problem = _problem(call)
    if problem:
        call.failed = True
        call.write(problem)
        return
    count = call.number("c", _USUAL_COUNT)
    try:
        if call.has("i"):
            await _of_queue(call, count)
        else:
            await _of_topic(call, count)
    except Failure as failure:
        if failure.kind == number_failure("").kind:
            raise
        call.complain(failure)


def _problem(call: Call) -> str | None:
    """Return what is wrong with the options, in Java's words."""
    now_ms = time.time() * 1000
    begin, end = (_moment(call.text(letter)) if call.has(letter) else 0 for letter in "se")
    rules = [
        (call.has("c") and call.number("c") <= 0, "Please input a positive messageNumber!"),
        (call.has("i") and not call.has("b"), "Please set the brokerName before queueId!"),
        (call.has("o") and not call.has("i"), "Please set queueId before offset!"),
        (begin > now_ms, "Please set the beginTimestamp before now!"),
        (end > now_ms, "Please set the endTimestamp before now!"),
        (
            call.has("e") and begin > end,
            "Please make sure that the beginTimestamp is less than or equal to the endTimestamp",
        ),
    ]
    return next((words for is_so, words in rules if is_so), None)


async def _of_topic(call: Call, count: int) -> None:
    left = count
    for queue in await queues_of(call, call.text("t")):
        if left == 0:
            return
        address = await address_of(call, queue)
        begin, end = await _limits(call, address, queue)
        if end - begin > left:
            call.line("The older %d message of the %d queue will be provided", left, queue.queue_id)
            end = begin + left - 1
            left = 0
        else:
            left -= end - begin + 1
        await _consume(call, address, queue, begin, end)


async def _of_queue(call: Call, count: int) -> None:
    queue = MessageQueue(call.text("t"), call.text("b"), call.number("i"))
    offset = call.number("o")
    address = await address_of(call, queue)
    begin, end = await _limits(call, address, queue)
    if offset > end:
        call.line("%s no matched msg, offset=%s", java.queue_text(queue), offset)
        return
    begin = max(begin, offset)
    if end - begin > count:
        call.line("The oldler %d message will be provided", count)
        end = begin + count - 1
    await _consume(call, address, queue, begin, end)


async def _limits(call: Call, address: str, queue: MessageQueue) -> tuple[int, int]:
    begin, end = await span_of(call, address, queue)
    if call.has("s") and _moment(call.text("s")) > 0:
        begin = await _offset_at(call, address, queue, "s")
    if call.has("e") and _moment(call.text("e")) > 0:
        end = await _offset_at(call, address, queue, "e")
    return begin, end


async def _consume(call: Call, address: str, queue: MessageQueue, offset: int, last: int) -> None:
    """Print messages up to an offset. Java asks for one message more than there is."""
    while offset <= last:
        pulled = await pull(call, address, queue, offset, count=last - offset + 1)
        offset = pulled.next_offset
        if pulled.status == FOUND:
            call.line("Consume ok")
            for message in pulled.messages:
                print_message(call, message, _UTF8, True)
        if _is_over(call, queue, pulled):
            return
