import pytest

from sparrowmq.console.cluster_view import BrokerNow
from sparrowmq.console.pages.overview import ClusterNow, rate_chart
from sparrowmq.console.samples import Rate
from sparrowmq.errors import BrokerUnreachable

pytestmark = pytest.mark.asyncio(loop_scope="session")


def broker(number, figures, silence=None):
    return BrokerNow("c", "b", number, "a:1", figures, silence)


async def test_totals_count_what_masters_take_and_all_give():
    figures = {
        "putTps": "10 1 1",
        "getTransferredTps": "5 1 1",
        "msgPutTotalTodayNow": "30",
        "msgPutTotalTodayMorning": "10",
    }
    old = {"putTps": "10 1 1", "getTransferedTps": "7 1 1"}
    found = [broker(0, figures), broker(1, old), broker(2, {}, BrokerUnreachable("b", "away"))]
    assert ClusterNow(found, ["topic", "dlq", "topic"], {}).totals() == {
        "Brokers that answer": "2 of 3",
        "In per second": "10.0",
        "Out per second": "12.0",
        "Received today": "20",
        "Delivered today": "0",
        "Topics": "2",
        "With dead letters": "1",
    }
    assert found[1].out_per_second == 7.0


async def test_a_chart_has_a_line_for_each_broker():
    drawn = rate_chart("t", {"a": [Rate(90_000, 2.0, 3.0)], "b": []}, lambda rate: rate.received)
    assert [(each["name"], each["data"]) for each in drawn["series"]] == [("a", [[90_000, 2.0]]), ("b", [])]
    assert (drawn["xAxis"]["min"], drawn["xAxis"]["max"]) == (30_000, 90_000), "one point makes no axis of days"
    assert rate_chart("t", {}, lambda rate: rate.received)["xAxis"]["min"] is None


@pytest.mark.nightly
async def test_the_first_page_shows_the_brokers_and_the_slave(visit):
    vera = await visit("vera")
    await vera.go("")
    await vera.sees("3 of 3", "broker-0", "slave 1")
    await vera.page.locator("canvas").nth(1).wait_for()
