"""The names of properties: none twice, and each either RocketMQ's own or open to applications."""

from sparrowmq.protocol.messages.property_names import OPEN, RESERVED, Property

NAMES = [value for name, value in vars(Property).items() if name.isupper()]


def test_no_name_is_given_twice():
    assert len(set(NAMES)) == len(NAMES)


def test_each_name_is_reserved_or_open():
    assert set(NAMES) == OPEN | RESERVED
    assert not OPEN & RESERVED
    assert Property.UNIQ_KEY in RESERVED
    assert Property.SHARDING_KEY in OPEN
