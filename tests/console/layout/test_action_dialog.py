import pytest

from tests.console.contrast import contrast

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_deletion_needs_the_typed_name_and_its_result_is_shown_on_the_next_page(visit, stage):
    boss = await visit("boss")
    await boss.go("topics/spare")
    await boss.press("Delete")
    await boss.sees("Nothing can restore them")
    await boss.press("Delete")
    await boss.sees("type spare to confirm")
    await boss.fill("Type spare to confirm", "spare")
    await boss.press("Delete")
    await boss.page.wait_for_url("**/topics")
    await boss.sees("topic spare is deleted")
    async with stage.admin() as admin:
        assert "spare" not in await admin.topics()


@pytest.mark.slow
async def test_enter_submits_a_dialog_once(visit, stage):
    boss = await visit("boss")
    await boss.go("groups")
    await boss.press("New group")
    name = boss.page.get_by_label("Name", exact=True).last
    await name.fill("made-by-enter")
    await name.press("Enter")
    await boss.page.wait_for_url("**/groups/made-by-enter")
    await boss.sees("group made-by-enter is created")
    await boss.press("Delete")
    typed = boss.page.get_by_label("Type made-by-enter to confirm", exact=True).last
    await typed.fill("made-by-enter")
    await typed.press("Enter")
    await boss.page.keyboard.press("Enter")  # wherever the first one has led by now
    await boss.page.wait_for_url("**/groups")
    await boss.sees("group made-by-enter is deleted")
    async with stage.admin() as admin:
        assert "made-by-enter" not in await admin.groups()


@pytest.mark.slow
async def test_a_result_that_comes_after_its_page_was_left_is_shown_on_the_page_that_follows(visit):
    boss = await visit("boss")
    await boss.go("dlq?group=billing")
    await boss.press("Retry")
    await boss.fill("Maximum messages per second", "1")
    await boss.press("Retry")
    await boss.sees("1 sent")
    await boss.go("groups")
    await boss.sees("sent 3 dead letters to billing again")


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
async def test_the_text_of_each_button_can_be_read(visit, dark):
    boss = await visit("boss", dark=dark)
    ratios: dict[tuple[str, ...], float] = {}
    for path, opens, submits in (
        ("groups/idle", "Reset offsets", "Reset offsets"),
        ("groups/idle", "Delete", "Delete"),
        ("groups/idle", "Change", "Save"),
        ("cluster/broker-1", "Change a setting", "Save"),
    ):
        await boss.go(path)
        if dark:
            await boss.page.locator("body.body--dark").wait_for()
        await boss.press(opens)
        dialog = boss.page.locator(".q-dialog .q-card")
        for name in ("Cancel", submits):
            button = dialog.get_by_role("button", name=name, exact=True)
            await button.wait_for()
            ratios[path, opens, name] = await contrast(button)
    await boss.go("groups/idle")
    for name in ("Reset offsets", "Delete"):
        ratios[(name,)] = await contrast(boss.page.get_by_role("button", name=name, exact=True).first)
    assert {each: round(ratio, 1) for each, ratio in ratios.items() if ratio < 4.5} == {}


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
async def test_the_text_of_notices_can_be_read(visit, dark):
    boss = await visit("boss", dark=dark)
    await boss.go("groups/idle")
    await boss.press("Delete")
    await boss.sees("This also deletes")
    await boss.press("Delete")
    await boss.sees("type idle to confirm")
    assert await contrast(boss.page.locator(".q-notification").last) >= 4.5
    await boss.press("Cancel")
    await boss.press("Change")
    await boss.press("Save")
    await boss.sees("group idle is changed")
    shown = boss.page.locator(".q-notification", has_text="group idle is changed")
    assert await contrast(shown) >= 4.5
