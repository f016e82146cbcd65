"""What a selector lets through, by the entry and by the record."""

from sparrowmq.protocol.selector import ALL, Selector


def test_without_a_wish_everything_is_wanted() -> None:
    assert ALL.takes_all and not ALL.needs_record
    assert ALL.wants(0) and ALL.wants(-5) and ALL.wants_record(memoryview(b""))


def test_a_tag_is_wanted_by_its_hash() -> None:
    some = Selector(frozenset({7}))
    assert not some.takes_all and not some.needs_record
    assert some.wants(7) and not some.wants(8)


def test_a_predicate_looks_at_the_record() -> None:
    long = Selector(predicate=lambda record: len(record) > 3)
    assert long.needs_record and not long.takes_all
    assert (
        long.wants(8) and long.wants_record(memoryview(b"long")) and not long.wants_record(memoryview(b"no"))
    )


def test_both_must_hold() -> None:
    both = Selector(frozenset({7}), lambda record: record[0] == 1)
    assert both.wants(7) and not both.wants(8)
    assert both.wants_record(memoryview(b"\x01")) and not both.wants_record(memoryview(b"\x02"))
