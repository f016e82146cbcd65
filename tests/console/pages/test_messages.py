from datetime import datetime

import pytest

from sparrowmq.console.pages.messages import moment_of
from tests.console.stage import HOSTILE

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_times_are_local_or_told_to_be_none():
    assert moment_of("2026-11-20 08:00", "since") == datetime(2026, 11, 20, 8).astimezone()
    assert moment_of("", "since") is moment_of(None, "since") is None
    with pytest.raises(ValueError, match="since: 'x' is no time"):
        moment_of("x", "since")


@pytest.mark.slow
async def test_messages_are_found_by_time_key_and_id_and_the_search_is_an_address(visit, stage):
    vera = await visit("vera")
    page = vera.page
    await vera.go("messages?topic=orders&age=1d")
    await vera.sees("20 messages", HOSTILE)
    await vera.fill("Key", "order-7")
    await vera.press("Search")
    await vera.sees("1 messages")
    assert "key=order-7" in page.url
    await page.reload()
    await vera.sees("1 messages")
    await vera.go(f"messages?topic=orders&id={stage.msg_id}")
    await vera.sees("1 messages", stage.msg_id)
    await vera.go("messages")
    await vera.press("Search")
    await vera.sees("name a topic")
