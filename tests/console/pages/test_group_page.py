import pytest

from sparrowmq.protocol.requests.group_settings import text_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.slow
async def test_a_group_is_moved_after_a_dry_run(visit, stage):
    olga = await visit("olga")
    await olga.go("groups/idle")
    await olga.sees("No lag; ")
    await olga.press("Reset offsets")
    await olga.fill("Topic", "orders")
    await olga.page.get_by_label("Position").last.click()
    await olga.page.get_by_role("option", name="the first stored message").click()
    await olga.press("Dry run")
    await olga.sees("Group idle would receive 0 messages of orders again")
    async with stage.admin() as admin:
        assert (await admin.lag("idle")).lag == 0
    await olga.press("Reset offsets")
    await olga.sees("offsets of group idle are reset")
    async with stage.admin() as admin:
        assert (await admin.lag("idle")).lag == 20
    await olga.go("groups/idle")
    await olga.press("Skip waiting messages")
    await olga.sees("Group idle will never receive 20 messages of orders.")
    await olga.press("Skip")
    await olga.sees("skips to the end")
    async with stage.admin() as admin:
        assert (await admin.lag("idle")).lag == 0


@pytest.mark.nightly
async def test_a_group_is_changed_and_deleted(visit, stage):
    boss = await visit("boss")
    await boss.go("groups/spare-group")
    await boss.press("Change")
    await boss.fill("Maximum retries before dead letters", "3")
    await boss.fill("Pauses before retries", "soon")
    await boss.press("Save")
    await boss.sees("retry pauses 'soon' cannot be read")
    await boss.fill("Pauses before retries", "10s 1m")
    await boss.page.get_by_role("checkbox", name="Deliver in order").click()
    await boss.press("Save")
    await boss.sees("is changed")
    async with stage.admin() as admin:
        settings = (await admin.group("spare-group")).settings["broker-0"]
        assert (settings.retry_max_times, settings.consume_message_orderly) == (3, True)
        assert text_of(settings.group_retry_policy) == "10s 1m"
    await boss.go("groups/spare-group")
    await boss.press("Delete")
    await boss.fill("Type spare-group to confirm", "spare-group")
    await boss.press("Delete")
    await boss.page.wait_for_url("**/groups")
    async with stage.admin() as admin:
        assert "spare-group" not in await admin.groups()
