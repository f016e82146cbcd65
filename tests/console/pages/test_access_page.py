import pytest

from sparrowmq.console.pages.cluster import ACCOUNT_COLUMNS
from sparrowmq.protocol.requests.bodies import AccountEntry

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_secrets_are_in_no_row():
    entry = AccountEntry("someone", "secretOfSomeone", topic_perms=["a=PUB"], group_perms=["g=SUB"])
    cells = [column.cell(entry) for column in ACCOUNT_COLUMNS]
    assert cells[0] == "someone" and "a=PUB, g=SUB" in cells
    assert "secretOfSomeone" not in str(cells)


@pytest.mark.nightly
async def test_an_account_is_made_and_deleted_and_no_secret_is_shown(visit):
    boss = await visit("boss")
    page = boss.page
    await boss.go("access")
    await boss.sees("onlyReader", "127.0.0.1", "10.9.8.7")
    assert "secretOf" not in await page.content()
    await page.get_by_role("button", name="Create or change an account").first.click()
    await boss.fill("Access key, more than 6 characters", "newcomer")
    await boss.fill("Secret key; empty keeps the old one", "secretOfNewcomer")
    await boss.press("Save")
    await boss.sees("account newcomer is saved")
    await boss.go("access")
    assert await page.get_by_text("newcomer", exact=True).count() >= 2, "at both masters"
    assert "secretOf" not in await page.content()
    await page.get_by_role("button", name="Delete an account").first.click()
    await page.get_by_label("Access key", exact=True).last.click()
    await page.get_by_role("option", name="newcomer").click()
    await boss.fill("Type newcomer to confirm", "newcomer")
    await boss.press("Delete")
    await boss.sees("account newcomer is deleted")


@pytest.mark.nightly
async def test_addresses_that_need_no_account_are_set_at_one_broker(visit):
    boss = await visit("boss")
    page = boss.page
    await boss.go("access")
    for now, wanted in (("10.9.8.7", "10.9.8.7,10.9.8.6"), ("10.9.8.7,10.9.8.6", "10.9.8.7")):
        await page.get_by_role("button", name="Addresses", exact=True).first.click()
        await boss.sees("Clients at these addresses may do everything")
        field = page.get_by_label("Addresses", exact=True).locator("visible=true").last
        assert await field.input_value() == now
        await field.fill(wanted)
        await boss.press("Save")
        await boss.sees("the addresses are saved")
        shown = f"Addresses that need no account: {wanted.replace(',', ', ')}"
        await page.get_by_text(shown, exact=True).wait_for()
        await boss.sees("Addresses that need no account: 127.0.0.1")


@pytest.mark.nightly
async def test_who_only_looks_changes_no_account(visit):
    olga = await visit("olga")
    await olga.go("access")
    for name in ("Create or change an account", "Addresses", "Delete an account"):
        assert await olga.page.get_by_role("button", name=name, exact=True).count() == 0
