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
    await vera.sees("1 message")
    assert "key=order-7" in page.url
    await page.reload()
    await vera.sees("1 message")
    await vera.go(f"messages?topic=orders&id={stage.msg_id}")
    await vera.sees("1 message")
    await page.get_by_role("button", name="Details of row 1").click()
    await vera.sees(stage.msg_id)
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


async def test_the_newest_message_comes_first_until_another_order_is_chosen(visit):
    vera = await visit("vera")
    page = vera.page
    await vera.go("messages?topic=orders&age=1d")
    await vera.sees("20 messages")
    times = await page.locator("tbody tr td:nth-child(2)").all_inner_texts()
    assert len(set(times)) > 1 and times == sorted(times, reverse=True)
    heading = page.get_by_role("columnheader", name="Stored")
    assert await heading.get_attribute("aria-sort") is None
    await heading.get_by_role("button").click()
    await page.wait_for_function("document.querySelector('th[aria-sort=ascending]')")
    assert await page.locator("tbody tr td:nth-child(2)").all_inner_texts() == sorted(times)


@pytest.mark.slow
async def test_a_message_unfolds_with_its_body_and_is_copied(visit, stage):
    vera = await visit("vera")
    page = vera.page
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await vera.go("messages?topic=orders&age=1d&key=order-19")
    await vera.sees("1 message")
    assert '{"number": 19' in await page.locator("tbody tr").inner_text(), "the body is in the row"
    fold = page.get_by_role("button", name="Details of row 1", exact=True)
    await fold.click()
    await page.locator("tr.details", has_text='"amount": 28.5').wait_for()
    assert await fold.get_attribute("aria-expanded") == "true"
    for name, text in (("id", stage.msg_id), ("key", "order-19"), ("body", '"number": 19')):
        await page.get_by_role("button", name=f"Copy {name}", exact=True).click()
        await vera.sees(f"copied: {name}")
        has = "text => navigator.clipboard.readText().then(each => each.includes(text))"
        await page.wait_for_function(has, arg=text)
    await fold.click()
    await page.locator("tr.details").wait_for(state="detached")


async def test_an_age_that_is_none_of_the_list_is_times_below(visit):
    vera = await visit("vera")
    await vera.go("messages?topic=orders&age=2h")
    await vera.sees("times below", "say since when")
