import pytest

from sparrowmq.console.pages.live_tail import filter_of

pytestmark = pytest.mark.asyncio(loop_scope="session")
NOTHING = dict.fromkeys(("topic", "tag", "where", "path", "text"), "")


async def test_a_form_says_what_is_wanted_or_what_is_wrong():
    wanted = filter_of(NOTHING | {"topic": "orders", "path": "a > 1", "tag": "x"})
    assert (wanted.topic, wanted.tag, wanted.where) == ("orders", "x", None)
    with pytest.raises(ValueError, match="name a topic"):
        filter_of(NOTHING)
    with pytest.raises(ValueError, match="not by both"):
        filter_of(NOTHING | {"topic": "orders", "tag": "x", "where": "a > 1"})


@pytest.mark.nightly
async def test_what_comes_is_shown_filtered_and_can_be_paused(visit):
    vera = await visit("vera")
    page = vera.page
    await vera.go("tail?topic=ticks&path=odd+%3D%3D+true")
    await vera.sees("following ticks", '"odd": true')
    assert await page.get_by_text('"odd": false').count() == 0
    await vera.press("Pause")
    await vera.sees("paused ticks")
    shown = await page.locator("tbody").inner_text()
    counted = await page.get_by_text("paused ticks").inner_text()
    await page.wait_for_function("told => !document.body.innerText.includes(told)", arg=counted)
    assert await page.locator("tbody").inner_text() == shown
    await vera.fill("JSON path: $.amount > 5", "")
    await vera.fill("SQL92: amount > 5", "size = 'small'")
    await vera.press("Follow")
    await vera.sees('"odd": false')
    assert "where=size" in page.url
    await vera.fill("SQL92: amount > 5", "size = = 5")
    await vera.press("Follow")
    await vera.sees("not following a topic")
