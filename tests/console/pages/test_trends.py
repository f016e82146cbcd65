from datetime import date

import pytest

from sparrowmq.console.pages.overview import busiest, day_of, span_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

TODAY = date(2026, 11, 20)

# What the page's charts were told, by their titles.
DRAWN = """() => Object.fromEntries([...document.querySelectorAll(".nicegui-echart")].filter(
  each => getElement(parseInt(each.id.slice(1)))?.chart
).map(each => {
  const chart = getElement(parseInt(each.id.slice(1))).chart, told = chart.getOption();
  return [told.title[0].text, {
    names: told.yAxis[0].data || told.series.map(line => line.name),
    sizes: told.series.map(line => line.data.length),
    at: chart.convertToPixel({seriesIndex: 0}, [1, 0]),
  }];
}))"""


async def test_a_day_is_one_that_is_over_or_today():
    assert day_of("2026-11-03", TODAY) == date(2026, 11, 3)
    assert {day_of(text, TODAY) for text in ("", "2026-11-21", "yesterday", "2026-13-01", "0001-01-01")} == {TODAY}


async def test_a_day_that_is_over_is_drawn_whole_and_today_as_far_as_it_is_known():
    hour = 3_600_000
    day = (0, 24 * hour)
    assert span_of([[(5 * hour, 1.0), (6 * hour, 1.0)]], day, False) == day
    assert span_of([[(5 * hour, 1.0)], [(8 * hour, None)]], day, True) == (5 * hour, 8 * hour)
    assert span_of([[(5 * hour, 1.0)]], day, True) == (4 * hour, 5 * hour), "an hour at least"
    assert span_of([[(1000, 1.0)]], day, True) == (0, hour)
    assert span_of([[], []], day, True) == day


async def test_of_many_lines_the_ten_greatest_are_drawn():
    found = {f"b{number:02}": [(0, float(number)), (1, None)] for number in range(15)}
    assert list(busiest(found)) == [f"b{number:02}" for number in range(5, 15)]


@pytest.mark.nightly
async def test_the_first_page_shows_who_takes_the_most_and_the_trend_of_a_topic(visit):
    vera = await visit("vera")
    page = vera.page
    await vera.go("?topic=orders")
    # Brokers look at their queues every ten seconds, and are asked as often.
    first = f"({DRAWN})()['Topic TOP 10: messages in 24 hours']?.names[0] == 'ticks'"
    await page.wait_for_function(first, timeout=60_000)
    drawn = await page.evaluate(DRAWN)
    assert drawn["Broker 5 min trend: messages in per second"]["names"] == ["broker-0", "broker-1"]
    assert drawn["Topic 5 min trend: messages in per second"]["names"] == ["orders"]
    # A click on a bar chooses its topic.
    at = drawn["Topic TOP 10: messages in 24 hours"]["at"]
    await page.locator(".nicegui-echart").nth(3).click(position={"x": at[0], "y": at[1]})
    await page.wait_for_function(f"({DRAWN})()['Topic 5 min trend: messages in per second'].names[0] == 'ticks'")
    await page.wait_for_url("**/?topic=ticks")


@pytest.mark.nightly
async def test_the_topic_and_the_day_of_the_trends_are_chosen_and_stand_in_the_address(visit):
    vera = await visit("vera")
    page = vera.page
    await vera.go("dashboard?way=in")
    await page.wait_for_url("**/?way=in")
    await page.get_by_label("Topic", exact=True).fill("many-4")
    await page.get_by_role("option", name="many-42").click()
    await page.wait_for_url("**/?topic=many-42")
    await page.get_by_role("button", name="out", exact=True).click()
    await page.wait_for_url("**/?way=out&topic=many-42")
    await page.wait_for_function(f"({DRAWN})()['Broker 5 min trend: messages out per second']")
