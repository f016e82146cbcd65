"""What stands around every page, in a real browser."""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.nightly
async def test_keys_search_go_and_turn_the_light_off(visit):
    vera = await visit("vera")
    page = vera.page
    await vera.go("topics")
    await page.keyboard.press("d")
    await page.locator("body.body--dark").wait_for()
    await vera.go("topics")
    await page.locator("body.body--dark").wait_for()
    await page.keyboard.press("?")
    await vera.sees("light or dark")
    await page.keyboard.press("Escape")
    await page.keyboard.press("g")
    await page.keyboard.press("g")
    await page.wait_for_url("**/groups")
    await vera.go("topics")
    await page.keyboard.press("/")
    await page.wait_for_function("document.activeElement.getAttribute('aria-label') === 'Search'")
    await page.keyboard.type("gg?d")
    assert await page.get_by_label("Search").input_value() == "gg?d", "what is typed is text"


@pytest.mark.nightly
async def test_on_a_phone_the_places_are_behind_the_menu(visit):
    vera = await visit("vera", width={"width": 390, "height": 844})
    await vera.go("topics")
    consumers = vera.page.get_by_role("link", name="Consumers")
    assert not await consumers.is_visible()
    await vera.page.get_by_label("Menu").click()
    await consumers.click()
    await vera.page.wait_for_url("**/groups")
    assert await vera.page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
async def test_log_out_closes_every_open_page(visit, stage):
    boss = await visit(None)
    page = boss.page
    await page.goto(stage.url + "topics")
    await page.fill("input[name=name]", "boss")
    await page.fill("input[name=password]", "a long password")
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_url("**/topics")
    other = await page.context.new_page()
    await other.goto(stage.url + "groups")
    await other.get_by_role("heading", level=1).wait_for()
    await boss.go("topics")
    await page.get_by_label("Account").click()
    await page.get_by_role("button", name="Log out").click()
    await page.wait_for_url("**/login")
    await other.wait_for_url("**/login*")
