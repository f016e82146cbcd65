import pytest

from tests.console.stage import HOSTILE

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.nightly
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


@pytest.mark.slow
async def test_what_is_more_than_a_page_is_turned_to(visit):
    vera = await visit("vera")
    await vera.go("messages")
    await vera.sees("no search yet")
    await vera.go("messages?topic=%25DLQ%25many&age=1d")
    await vera.sees("1 to 200;")
    for page in range(2, 7):
        await vera.press("Next page")
        await vera.sees(f"{page * 200 - 199:,} to {page * 200:,};")
    await vera.page.get_by_role("button", name="Next page").wait_for(state="detached")


async def test_an_age_that_is_none_of_the_list_is_times_below(visit):
    vera = await visit("vera")
    await vera.go("messages?topic=orders&age=2h")
    await vera.sees("times below", "say since when")
