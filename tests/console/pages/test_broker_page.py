import pytest

from sparrowmq.console.pages.cluster import setting_rows
from tests.console.stage import HA_SECRET

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_settings_tell_what_others_have():
    assert setting_rows({"a": "1", "b": "3"}, {"b": {"a": "2"}, "c": {"a": "1"}}) == [
        ("a", "1", "b: 2"),
        ("b", "3", ""),
    ]


@pytest.mark.nightly
async def test_a_setting_is_changed_while_the_broker_runs(visit, stage):
    boss = await visit("boss")
    await boss.go("cluster/broker-0?filter=fileReserved")
    await boss.sees("fileReservedTime", "72")
    assert await boss.page.get_by_text(HA_SECRET).count() == 0
    await boss.press("Change a setting")
    await boss.fill("Setting", "fileReservedTime")
    await boss.page.get_by_role("option", name="fileReservedTime").click()
    await boss.fill("New value", "49")
    await boss.sees("fileReservedTime: '72' becomes '49'")
    await boss.press("Save")
    await boss.sees("fileReservedTime is 49")
    async with stage.admin() as admin:
        assert (await admin.broker_settings("broker-0"))["fileReservedTime"] == "49"


@pytest.mark.nightly
async def test_who_only_looks_cannot_change_one(visit):
    olga = await visit("olga")
    await olga.go("cluster/broker-1")
    assert await olga.page.get_by_role("button", name="Change a setting").count() == 0
    await olga.go("cluster/nobody")
    await olga.misses("there is no broker nobody")
