"""Every page once, at both widths, light and dark: no error, nothing from elsewhere, no markup that comes alive."""

import pytest

from sparrowmq.console.console_pages import PAGES
from tests.console.stage import HOSTILE
from tests.console.visiting import PHONE, WIDE

pytestmark = pytest.mark.asyncio(loop_scope="session")


def paths(stage):
    """An address for each page."""
    from urllib.parse import quote

    member = quote(HOSTILE, safe="")
    given = {
        "/topics/{name}": "topics/orders",
        "/groups/{name}": "groups/billing",
        "/groups/{group}/members/{name:path}": f"groups/billing/members/{member}",
        "/cluster/{name:path}": "cluster/broker-1",
        "/messages": "messages?topic=orders&age=1d",
        "/messages/{topic}/{name}": f"messages/orders/{stage.msg_id}",
        "/tail": "tail?topic=ticks",
        "/trace": f"trace?id={stage.msg_id}",
        "/dlq": "dlq?group=billing",
        "/search": f"search?q={member}",
    }
    return [given.get(path, path.lstrip("/")) for path in (page.path for page in PAGES)]


@pytest.mark.covers("S-ADM-04")
@pytest.mark.slow
async def test_every_page_opens_and_no_markup_in_it_comes_alive(visit, stage):
    vera = await visit("vera")
    for path in paths(stage):
        await vera.go(path)
        assert await vera.page.get_by_text("The console cannot show this page").count() == 0, path
        assert await vera.page.title() != "broken", path
        assert await vera.page.locator("img[src=x]").count() == 0, path


@pytest.mark.nightly
async def test_every_page_fits_a_phone_in_the_dark(visit, stage):
    boss = await visit("boss", width=PHONE, dark=True)
    for path in paths(stage):
        await boss.go(path)
        await boss.page.locator("body.body--dark").wait_for()
        assert await boss.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
    assert WIDE["width"] > PHONE["width"]
