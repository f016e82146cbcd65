import json

import pytest

from tests.console.stage import HOSTILE

pytestmark = pytest.mark.asyncio(loop_scope="session")


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
    await olga.press("Let the group try again")
    await olga.press("Dry run")
    await olga.sees("1 dead letters of an unknown topic would be sent again.")
    await olga.press("Try again")
    await olga.sees("sent 1 of 1 dead letters to billing again")
    async with stage.admin() as admin:
        assert sum(each.max_offset for each in (await admin.topic("%RETRY%billing")).queues) >= 1


@pytest.mark.slow
async def test_who_only_looks_cannot_redrive(visit):
    vera = await visit("vera")
    await vera.go("dlq?group=billing")
    await vera.sees("3 of 3")
    assert await vera.page.get_by_role("button", name="Let the group try again").count() == 0
    await vera.go("dlq?group=idle")
    await vera.sees("0 of 0")
