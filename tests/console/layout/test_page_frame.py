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


async def log_in(page):
    await page.fill("input[name=name]", "boss")
    await page.fill("input[name=password]", "a long password")
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_url("**/topics")


async def log_out(boss):
    await boss.go("topics")
    await boss.page.get_by_label("Account").click()
    await boss.page.get_by_role("button", name="Log out").click()
    await boss.page.wait_for_url("**/login")


async def two_pages(visit, stage):
    """A visitor who has just logged in, and a second page."""
    boss = await visit(None)
    await boss.page.goto(stage.url + "topics")
    await log_in(boss.page)
    other = await boss.page.context.new_page()
    await other.goto(stage.url + "groups")
    await other.wait_for_function("window.did_handshake")
    return boss, other


@pytest.mark.slow
async def test_log_out_closes_every_open_page(visit, stage):
    boss, other = await two_pages(visit, stage)
    await log_out(boss)
    await other.wait_for_url("**/login*")


@pytest.mark.slow
async def test_a_page_that_connects_after_the_log_out_shows_the_log_in(visit, stage):
    boss, other = await two_pages(visit, stage)
    await other.evaluate("window.socket.disconnect()")
    await log_out(boss)
    await other.evaluate("window.socket.connect()")
    await other.wait_for_url("**/login?next=/groups")
    boss.wrong.clear()  # the browser reports the 401


@pytest.mark.slow
async def test_a_page_of_an_earlier_log_in_that_connects_is_loaded_again(visit, stage):
    boss, other = await two_pages(visit, stage)
    await other.evaluate("window.socket.disconnect(); window.is_old = true")
    await log_out(boss)
    await boss.page.goto(stage.url + "topics")
    await log_in(boss.page)
    await other.evaluate("window.socket.connect()")
    await other.wait_for_function("window.did_handshake && !window.is_old")
