import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_what_destroys_wants_the_name_typed(visit, stage):
    boss = await visit("boss")
    await boss.go("topics/spare")
    await boss.press("Delete")
    await boss.sees("Nothing brings them back")
    await boss.press("Delete")
    await boss.sees("type spare to confirm")
    await boss.fill("Type spare to confirm", "spare")
    await boss.press("Delete")
    await boss.page.wait_for_url("**/topics")
    async with stage.admin() as admin:
        assert "spare" not in await admin.topics()
