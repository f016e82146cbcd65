import pytest

from tests.console.visiting import PHONE

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.covers("S-ADM-04")
async def test_topics_are_filtered_paged_and_made(visit, stage):
    boss = await visit("boss")
    page = boss.page
    await boss.go("topics")
    await boss.sees("many-00")
    assert await page.locator("tbody tr").count() == 50, "rows of one page, and no more"
    assert "many-59" not in await page.content(), "nor is what the page does not show sent with it"
    await page.get_by_label("Filter").fill("many")
    await page.get_by_text("60", exact=True).wait_for()
    await page.get_by_role("button", name="2", exact=True).click()
    await boss.sees("many-59")
    assert page.url.endswith("topics?filter=many&page=2")
    await page.reload()
    await boss.sees("many-59")
    await boss.go("topics")
    await boss.press("New topic")
    await boss.sees("One member of a group reads a queue at a time")
    await boss.fill("Name", "bad name")
    await boss.press("Create")
    await boss.sees("bad name")
    await boss.fill("Name", "fresh")
    await boss.press("Create")
    await page.wait_for_url("**/topics/fresh")
    async with stage.admin() as admin:
        assert [each.read_queues for each in (await admin.topic("fresh")).shares] == [8, 8]


@pytest.mark.nightly
async def test_kinds_are_chosen_and_stand_in_the_address(visit):
    vera = await visit("vera")
    await vera.go("topics?kinds=dlq")
    await vera.sees("%DLQ%billing")
    assert await vera.page.get_by_role("link", name="many-00").count() == 0
    await vera.page.get_by_role("checkbox", name="Topics", exact=True).click()
    await vera.sees("many-00")
    assert vera.page.url.endswith("topics?kinds=dlq%2Ctopic")


@pytest.mark.slow
async def test_who_only_looks_has_no_button_that_changes(visit):
    vera = await visit("vera")
    await vera.go("topics")
    assert await vera.page.get_by_role("button", name="New topic").count() == 0
    await vera.go("topics/orders")
    for name in ("Send", "Reset offsets", "Change", "Delete"):
        assert await vera.page.get_by_role("button", name=name, exact=True).count() == 0
    olga = await visit("olga")
    await olga.go("topics/orders")
    names = [await olga.page.get_by_role("button", name=name, exact=True).count() for name in ("Send", "Delete")]
    assert names == [1, 0]


@pytest.mark.slow
async def test_topics_show_what_they_have_and_are_sorted_by_it(visit):
    vera = await visit("vera")
    page = vera.page
    await vera.go("topics?sort=Messages&order=down")
    await page.wait_for_function("document.querySelector('tbody tr').innerText.startsWith('ticks')", timeout=60_000)
    heading = page.get_by_role("columnheader", name="Messages")
    assert await heading.get_attribute("aria-sort") == "descending"
    row = page.locator("tbody tr", has=page.get_by_role("link", name="orders", exact=True))
    cells = dict(
        zip(await page.locator("th").all_inner_texts(), await row.locator("td").all_inner_texts(), strict=True)
    )
    assert (cells["Messages ▼"], cells["Queues"]) == ("20", "4")
    assert int(cells["Groups"]) >= 1  # other tests may have had theirs
    await heading.get_by_role("button").click()
    await page.wait_for_url("**/topics?sort=Messages")
    await page.wait_for_function("!document.querySelector('tbody').innerText.includes('ticks')")


@pytest.mark.slow
async def test_on_a_phone_queues_name_their_broker_and_brokers_their_role(visit):
    vera = await visit("vera", width=PHONE)
    for path, name in (
        ("", "Role"),
        ("cluster", "Role"),
        ("topics/orders", "Broker"),
        ("groups/billing", "Broker"),
    ):
        await vera.go(path)
        assert await vera.page.get_by_role("columnheader", name=name).first.is_visible(), path
        assert await vera.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
