import pytest

from tests.console.stage import HOSTILE

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.covers("S-ADM-04")
@pytest.mark.nightly
async def test_a_member_tells_what_it_does_and_its_name_is_text(visit):
    vera = await visit("vera")
    await vera.go("groups/billing")
    await vera.page.get_by_role("link", name=HOSTILE).first.click()
    await vera.sees("Subscriptions", "PROP_CONSUME_TYPE", "orders")
    assert await vera.page.title() == f"Member {HOSTILE} · SparrowMQ"


@pytest.mark.nightly
async def test_one_that_is_gone_is_told(visit):
    vera = await visit("vera")
    await vera.go("groups/billing/members/nobody")
    await vera.misses("nobody")
