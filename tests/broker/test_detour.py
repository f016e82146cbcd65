import pytest

from sparrowmq.broker import detour
from sparrowmq.errors import InvalidMessage

PROPERTIES = {"KEYS": "k", "DELAY": "3", "UNIQ_KEY": "AB"}


@pytest.mark.covers("S-DELAY-02", "S-DELAY-04")
def test_a_parked_message_comes_back_to_its_address_without_its_delay():
    parked = detour.park("Orders", 2, PROPERTIES)
    assert parked == {**PROPERTIES, "REAL_TOPIC": "Orders", "REAL_QID": "2"}
    topic, queue_id, properties = detour.restore(parked)
    assert (topic, queue_id) == ("Orders", 2)
    assert properties == {"KEYS": "k", "UNIQ_KEY": "AB", "REAL_TOPIC": "Orders", "REAL_QID": "2"}


def test_parking_again_replaces_the_old_address():
    once = detour.restore(detour.park("Orders", 2, PROPERTIES)).properties
    assert detour.restore(detour.park("%RETRY%g", 0, once))[:2] == ("%RETRY%g", 0)


def test_parking_leaves_the_callers_properties_alone():
    detour.park("Orders", 2, PROPERTIES)
    assert "REAL_TOPIC" not in PROPERTIES


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"REAL_TOPIC": "T"},
        {"REAL_QID": "1"},
        {"REAL_TOPIC": "T", "REAL_QID": "-1"},
        {"REAL_TOPIC": "", "REAL_QID": "1"},
    ],
)
def test_a_message_without_an_address_cannot_come_back(properties):
    with pytest.raises(InvalidMessage, match="no address"):
        detour.restore(properties)
