import pytest

from sparrowmq.console.cluster_view import BrokerNow
from sparrowmq.console.pages.cluster import behind, differences, percent, state_of
from sparrowmq.errors import BrokerUnreachable

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_settings_that_differ_are_told_without_names_and_addresses():
    settings = {
        "a": {"x": "1", "y": "2", "brokerName": "a"},
        "b": {"x": "1", "y": "3", "z": "4", "brokerName": "b"},
    }
    assert differences(settings) == {"y": {"a": "2", "b": "3"}, "z": {"a": "", "b": "4"}}


async def test_a_slave_tells_how_much_it_does_not_have():
    def broker(number, end, silence=None):
        return BrokerNow("c", "b", number, "a:1", {"commitLogMaxOffset": str(end)}, silence)

    assert behind(broker(1, 900), {"b": 1000}) == "100 B"
    assert behind(broker(0, 1000), {"b": 1000}) == ""
    assert behind(broker(1, 900), {}) == behind(broker(1, 0, BrokerUnreachable("b", "x")), {"b": 1}) == "unknown"
    assert percent("0.514") == "51%" and percent("?") == ""


@pytest.mark.covers("S-ADM-04")
@pytest.mark.nightly
async def test_the_cluster_shows_masters_and_the_slave_and_what_differs(visit):
    vera = await visit("vera")
    await vera.go("cluster")
    await vera.sees("slave 1", "Settings that differ", "0 B")


async def test_the_state_of_a_broker_is_its_worst_condition():
    def state(silence=None, **conditions):
        figures = {f"condition.{name}": f'{{"severity":"{severity}"}}' for name, severity in conditions.items()}
        found = state_of(BrokerNow("c", "b", 0, "a:1", figures, silence))
        return found.text, found.color

    assert state() == ("up", "green-9")
    assert state(drained="warning") == ("drained", "deep-orange-10")
    assert state(drained="warning", disk_full="critical") == ("disk_full +1", "red-9")
    assert state(BrokerUnreachable("b", "x"), disk_full="critical") == ("no answer", "red-9")
