import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_deletion_needs_the_typed_name(visit, stage):
    boss = await visit("boss")
    await boss.go("topics/spare")
    await boss.press("Delete")
    await boss.sees("Nothing can restore them")
    await boss.press("Delete")
    await boss.sees("type spare to confirm")
    await boss.fill("Type spare to confirm", "spare")
    await boss.press("Delete")
    await boss.page.wait_for_url("**/topics")
    async with stage.admin() as admin:
        assert "spare" not in await admin.topics()
