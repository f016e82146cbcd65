"""What a selector lets through, by the entry and by the record."""

from sparrowmq.broker.sql_filters import RecordFilter
from sparrowmq.filter.grammar import parse
from sparrowmq.protocol.selector import ALL, Selector

CHEAP = RecordFilter(parse("price < 5"))


def wants(selector: Selector, properties: bytes) -> bool:
    assert selector.predicate is not None
    return selector.predicate.holds(properties, 0, len(properties))


def test_without_a_wish_everything_is_wanted() -> None:
    assert ALL.takes_all and ALL.takes_all_tags and ALL.predicate is None
    assert ALL.wants(0) and ALL.wants(-5)


def test_a_tag_is_wanted_by_its_hash() -> None:
    some = Selector(frozenset({7}))
    assert not some.takes_all and not some.takes_all_tags and some.predicate is None
    assert some.wants(7) and not some.wants(8)


def test_a_predicate_looks_at_the_properties() -> None:
    cheap = Selector(predicate=CHEAP)
    assert cheap.takes_all_tags and not cheap.takes_all
    assert cheap.wants(8) and wants(cheap, b"price\x014") and not wants(cheap, b"price\x015")


def test_both_must_hold() -> None:
    both = Selector(frozenset({7}), CHEAP)
    assert both.wants(7) and not both.wants(8)
    assert wants(both, b"price\x011\x02") and not wants(both, b"price\x019\x02")
