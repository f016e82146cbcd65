from types import SimpleNamespace
from typing import Any

import pytest

from sparrowmq.console.layout.message_results import MESSAGE_COLUMNS, MessageResults, range_text
from tests.console.layout.seeing import page, seen


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
