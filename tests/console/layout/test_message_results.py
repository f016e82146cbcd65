import zlib
from types import SimpleNamespace
from typing import Any

import pytest

from sparrowmq.admin.message_search import Reading
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.console.layout.message_results import (
    MESSAGE_COLUMNS,
    MessageResults,
    body_of,
    details_of,
    range_text,
)
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue, SysFlag
from tests.console.layout.seeing import page, seen
from tests.records import encoded


@pytest.mark.parametrize(
    ("before", "count", "looked", "is_more", "expected"),
    [
        (0, 3, 3, False, "3 of 3 messages"),
        (0, 100, 150, True, "1 to 100; 150 of 1,200 messages searched"),
        (100, 50, 1200, False, "101 to 150; 1,200 of 1,200 messages searched"),
        (100, 0, 1200, False, "no more; 1,200 of 1,200 messages searched"),
    ],
)
def test_the_line_names_the_messages_of_the_page(before, count, looked, is_more, expected):
    reading: Any = SimpleNamespace(looked=looked, total=1200)
    assert range_text(before, count, reading, is_more) == expected


def received(body, sys_flag):
    stored = record.decode(encoded(body=body, sys_flag=sys_flag))
    return ReceivedMessage(stored, MessageQueue("T", "broker-a", 0))


def test_a_row_shows_the_beginning_of_a_body_or_why_it_cannot():
    bomb = received(zlib.compress(b"x" * (64 << 20)), SysFlag.COMPRESSED)
    assert body_of(bomb) == "x" * 119 + "…"
    details = details_of(bomb).text
    assert len(details) < 17 << 10 and details.endswith("open the message for the rest")
    damaged = received(b"no zlib", SysFlag.COMPRESSED)
    assert "damaged" in body_of(damaged) and "damaged" in details_of(damaged).text


async def test_a_page_of_large_messages_has_fewer_of_them():
    left = [received(bytes(4 << 20), 0) for _ in range(9)]

    class Large(Reading):
        async def peek(self):
            return bool(left)

        async def __anext__(self):
            return left.pop()

    with page():
        results = MessageResults(seen(), MESSAGE_COLUMNS, 100, "no search yet")
        await results._read_page(Large([]))
    assert len(results.shown) == 4


async def test_an_older_search_that_still_runs_shows_nothing():
    with page():
        results = MessageResults(seen(), MESSAGE_COLUMNS, 10, "no search yet")

        async def newer():
            return []

        async def older():
            await results.search(newer())
            raise AssertionError("not shown") if results.shown else ValueError("too late")

        await results.search(older())
    assert results.table.element.props["no-data-label"] == "no message fits"
