import pytest

from sparrowmq.console.pages.groups import span_text

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_spans_are_told_as_people_do():
    spans = [None, 0, 4.2, 119, 120, 7199, 7200, 172_800]
    assert [span_text(each) for each in spans] == [
        "",
        "0 s",
        "4 s",
        "119 s",
        "2 min",
        "120 min",
        "2 h",
        "2 d",
    ]


@pytest.mark.nightly
async def test_groups_are_listed_with_their_lag_and_one_is_made(visit, stage):
    boss = await visit("boss")
    await boss.go("groups")
    await boss.sees("billing", "idle")
    await boss.press("New group")
    await boss.fill("Name", "fresh-group")
    await boss.press("Create")
    await boss.page.wait_for_url("**/groups/fresh-group")
    async with stage.admin() as admin:
        assert "fresh-group" in await admin.groups()
