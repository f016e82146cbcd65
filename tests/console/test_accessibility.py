"""Every page against WCAG 2.2 AA and axe's best practices, light and dark, wide and on a phone."""

import pytest
from axe_playwright_python.async_playwright import Axe

from tests.console.test_walk import paths
from tests.console.visiting import PHONE, WIDE

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


async def violations(visit):
    """What axe finds on the page that is open: a line for each element."""
    await visit.page.wait_for_timeout(400)  # colours fade in
    found = (await Axe().run(visit.page, options={"runOnly": RULES})).response["violations"]
    return [
        f"{visit.page.url}: {each['id']}: {node['target']}: {node['html'][:200]}: {node['failureSummary'][:300]}"
        for each in found
        for node in each["nodes"]
    ]


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(WIDE, False, id="wide-light"),
        pytest.param(WIDE, True, id="wide-dark"),
        pytest.param(PHONE, False, id="phone-light", marks=pytest.mark.nightly),
        pytest.param(PHONE, True, id="phone-dark", marks=pytest.mark.nightly),
    ],
)
async def test_axe_finds_nothing_on_any_page(visit, stage, width, dark):
    boss = await visit("boss", dark=dark, width=width)
    found = []
    for path in [*paths(stage), "dlq", "messages"]:
        await boss.go(path)
        found += await violations(boss)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_axe_finds_nothing_in_what_opens_on_a_page(visit, stage, dark):
    boss = await visit("boss", dark=dark)
    page = boss.page
    await page.goto(boss.url + "login?next=/")
    found = await violations(boss)
    await boss.go("topics/no-such")
    found += await violations(boss)
    assert ["404" in each for each in boss.wrong] == [True]
    boss.wrong.clear()
    await boss.go("messages?topic=orders&age=1d")
    await page.get_by_role("button", name="Details of row 1", exact=True).click()
    await page.locator("tr.details").wait_for()
    found += await violations(boss)
    await boss.go("topics/orders")
    for name in ("Delete", "Reset offsets", "Change", "Send"):
        await page.get_by_role("button", name=name, exact=True).first.click()
        await page.get_by_role("dialog").wait_for()
        found += await violations(boss)
        await boss.press("Cancel")
        await page.get_by_role("dialog").wait_for(state="detached")
    assert not found, "\n".join(found)
