import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_healthy_cluster_has_no_condition(visit):
    vera = await visit("vera")
    await vera.go("conditions")
    await vera.sees("Nothing is wrong")
    assert await vera.page.locator(".alarm").is_hidden()
