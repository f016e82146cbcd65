import pytest

from sparrowmq.console.pages.access_page import account_rows
from sparrowmq.protocol.requests.bodies import AccountEntry, AccountList

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_secrets_are_in_no_row():
    told = AccountList(
        [], [AccountEntry("someone", "secretOfSomeone", topic_perms=["a=PUB"], group_perms=["g=SUB"])]
    )
    (row,) = account_rows(told)
    assert row["key"] == "someone" and row["perms"] == "a=PUB, g=SUB"
    assert "secretOfSomeone" not in str(row)


@pytest.mark.nightly
async def test_an_account_is_made_and_deleted_and_no_secret_is_shown(visit):
    boss = await visit("boss")
    page = boss.page
    await boss.go("access")
    await boss.sees("onlyReader", "127.0.0.1", "10.9.8.7")
    assert "secretOf" not in await page.content()
    await page.get_by_role("button", name="Make or change an account").first.click()
    await boss.fill("Access key, more than 6 characters", "newcomer")
    await boss.fill("Secret key; empty leaves it", "secretOfNewcomer")
    await boss.press("Set it")
    await boss.sees("account newcomer is set")
    await boss.go("access")
    assert await page.get_by_text("newcomer", exact=True).count() >= 2, "at both masters"
    assert "secretOf" not in await page.content()
    await page.get_by_role("button", name="Delete an account").first.click()
    await page.get_by_text("newcomer", exact=True).last.click()
    await boss.fill("Type newcomer to confirm", "newcomer")
    await boss.press("Delete")
    await boss.sees("account newcomer is deleted")


@pytest.mark.nightly
async def test_addresses_that_need_no_account_are_set_at_one_broker(visit):
    boss = await visit("boss")
    page = boss.page
    await boss.go("access")
    for now, wanted in (("10.9.8.7", "10.9.8.7,10.9.8.6"), ("10.9.8.7,10.9.8.6", "10.9.8.7")):
        await page.get_by_role("button", name="Addresses").first.click()
        await boss.sees("Clients at these addresses may do everything")
        field = page.get_by_label("Addresses", exact=True).locator("visible=true").last
        assert await field.input_value() == now
        await field.fill(wanted)
        async with page.expect_navigation():
            await boss.press("Set them")
            await boss.sees("the addresses are set")
        shown = f"Addresses that need no account: {wanted.replace(',', ', ')}"
        await page.get_by_text(shown, exact=True).wait_for()
        await boss.sees("Addresses that need no account: 127.0.0.1")


@pytest.mark.nightly
async def test_who_only_looks_changes_no_account(visit):
    olga = await visit("olga")
    await olga.go("access")
    for name in ("Make or change an account", "Addresses", "Delete an account"):
        assert await olga.page.get_by_role("button", name=name).count() == 0
