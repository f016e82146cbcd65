"""Every page against WCAG 2.2 AA and axe's best practices, light and dark, wide and on a phone."""

import pytest
from axe_playwright_python.async_playwright import Axe

from tests.console.test_walk import paths
from tests.console.visiting import PHONE, WIDE

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOURS = ["color-contrast", "link-in-text-block"]


# Colours fade in. An animation without an end is of something that waits.
FADED = """() => Promise.allSettled(document.getAnimations()
    .filter(each => each.effect.getComputedTiming().endTime < Infinity).map(each => each.finished))"""


async def violations(visit, rules=RULES):
    """What axe finds on the page that is open: a line for each element."""
    await visit.page.evaluate(FADED)
    found = (await Axe().run(visit.page, options={"runOnly": rules, "resultTypes": ["violations"]})).response[
        "violations"
    ]
    return [
        f"{visit.page.url}: {each['id']}: {node['target']}: {node['html'][:200]}: {node['failureSummary'][:300]}"
        for each in found
        for node in each["nodes"]
    ]


async def turn(visit, scheme):
    """Change what the system prefers. A page without a frame has no body--dark: its style follows by itself."""
    await visit.page.emulate_media(color_scheme=scheme)
    await visit.page.wait_for_function(
        "dark => !window.Quasar || document.body.classList.contains('body--dark') === dark",
        arg=scheme == "dark",
    )


async def violations_in_both(visit):
    """What axe finds in the light, and what it finds wrong with the colours in the dark, where only they differ."""
    found = await violations(visit)
    await turn(visit, "dark")
    found += await violations(visit, COLOURS)
    await turn(visit, "light")
    return found


@pytest.mark.parametrize(
    "width",
    [
        pytest.param(WIDE, id="wide", marks=pytest.mark.slow),
        pytest.param(PHONE, id="phone", marks=pytest.mark.nightly),
    ],
)
async def test_axe_finds_nothing_on_any_page(visit, stage, width):
    boss = await visit("boss", width=width)
    found = []
    for path in [*paths(stage), "dlq", "messages"]:
        await boss.go(path)
        found += await violations_in_both(boss)
    assert not found, "\n".join(found)


@pytest.mark.slow
async def test_axe_finds_nothing_in_what_opens_on_a_page(visit, stage):
    boss = await visit("boss")
    page = boss.page
    await page.goto(boss.url + "login?next=/")
    found = await violations_in_both(boss)
    await boss.go("topics/no-such")
    found += await violations_in_both(boss)
    await boss.misses("no-such")
    await boss.go("messages?topic=orders&age=1d")
    await page.get_by_role("button", name="Details of row 1", exact=True).click()
    await page.locator("tr.details").wait_for()
    found += await violations_in_both(boss)
    await boss.go("topics/orders")
    for name in ("Delete", "Reset offsets", "Change", "Send"):
        await page.get_by_role("button", name=name, exact=True).first.click()
        await page.get_by_role("dialog").wait_for()
        found += await violations_in_both(boss)
        await boss.press("Cancel")
        await page.get_by_role("dialog").wait_for(state="detached")
    assert not found, "\n".join(found)
