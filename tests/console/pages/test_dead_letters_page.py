import json

import pytest

from tests.console.stage import HOSTILE

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.slow
async def test_dead_letters_are_looked_at_redriven_after_a_dry_run_and_exported(visit, stage):
    olga = await visit("olga")
    page = olga.page
    await olga.go("dlq")
    await page.get_by_role("link", name="billing", exact=True).click()
    await olga.sees("3 of 3", HOSTILE)
    await olga.fill("Text in the body", "two")
    await olga.sees("1 of 3")
    assert "text=two" in page.url
    async with page.expect_download() as download:
        await olga.press("Export")
    line = json.loads((await (await download.value).path()).read_text())
    assert line["body"] == "two"
    await olga.press("Retry")
    await olga.press("Dry run")
    await olga.sees("1 dead letter of an unknown topic would be sent again.")
    await olga.press("Retry")
    await olga.sees("sent 1 dead letter to billing again")
    async with stage.admin() as admin:
        assert sum(each.max_offset for each in (await admin.topic("%RETRY%billing")).queues) >= 1


@pytest.mark.slow
async def test_those_behind_the_first_thousand_are_found_exported_and_turned_to(visit):
    vera = await visit("vera")
    page = vera.page
    await vera.go("dlq?group=many&tag=late")
    await vera.sees("1 to 100; ", "of 1,200 messages searched")
    async with page.expect_download() as download:
        await vera.press("Export")
    lines = (await (await download.value).path()).read_text().splitlines()
    assert len(lines) == 100 and {json.loads(each)["tag"] for each in lines} == {"late"}
    await vera.fill("Tag", "")
    await vera.sees("1 to 100; 100 of 1,200 messages searched")
    await vera.press("Next page")
    await vera.sees("101 to 200; 200 of 1,200 messages searched")
    await vera.fill("Since", "2126-01-01")
    await vera.sees("0 of 0")
    await vera.go("dlq?group=many&until=2026-01-01")
    await vera.sees("0 of 0")
    await vera.go("dlq?group=many&since=yesterday")
    await vera.sees("since: 'yesterday' is not a time")


async def test_single_letters_are_chosen_with_a_tick(visit):
    olga = await visit("olga")
    page = olga.page
    await olga.go("dlq?group=billing")
    await olga.sees("3 of 3")
    for row in page.locator("tbody tr").nth(1), page.locator("tbody tr").nth(2):
        await row.get_by_role("checkbox").click()
        await row.get_by_role("checkbox", checked=True).wait_for()
    async with page.expect_download() as download:
        await olga.press("Export")
    assert len((await (await download.value).path()).read_text().splitlines()) == 2
    await olga.press("Retry")
    await olga.press("Dry run")
    await olga.sees("2 dead letters of an unknown topic would be sent again.")


@pytest.mark.nightly
async def test_who_only_looks_cannot_redrive(visit):
    vera = await visit("vera")
    await vera.go("dlq?group=billing")
    await vera.sees("3 of 3")
    assert await vera.page.get_by_role("button", name="Retry", exact=True).count() == 0
    await vera.go("dlq?group=idle")
    await vera.sees("0 of 0")
