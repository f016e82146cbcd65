import pytest

from sparrowmq.console.pages.search import is_id

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_ids_have_32_or_56_digits():
    assert is_id("7F" * 16) and is_id("a" * 56)
    assert not is_id("7F" * 15) and not is_id("G" * 32)


@pytest.mark.nightly
async def test_one_search_finds_topics_groups_brokers_and_messages(visit, stage):
    vera = await visit("vera")
    await vera.go("topics")
    await vera.page.get_by_label("Search").fill("bill")
    await vera.page.keyboard.press("Enter")
    await vera.page.wait_for_url("**/search?q=bill")
    await vera.sees("%DLQ%billing", "group")
    first = await vera.page.locator("tbody tr").first.inner_text()
    assert first.split() == ["group", "billing"]
    await vera.go("search?q=broker-1")
    await vera.sees("broker-1 slave 1")
    await vera.go(f"search?q={stage.msg_id}")
    await vera.sees("name its topic")
    await vera.go("search?q=%3Cscript%3E")
    await vera.sees("no name contains it")
