"""sparrowmq.spark.options: what each kind of option accepts."""

import re

import pytest

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark import options as values


@pytest.mark.parametrize(
    ("parse", "written", "expected"),
    [
        (values.text, " a ", "a"),
        (values.flag, "True", True),
        (values.flag, " false ", False),
        (values.one_of("a", "b"), "B", "b"),
        (values.whole_between(1), " 7 ", 7),
        (values.whole_between(-2, 9), "-2", -2),
        (values.names, "b, a,,b", ("b", "a")),
        (values.addresses, "h-1.x:9876 ; 10.0.0.1:1,[::1]:2", ("h-1.x:9876", "10.0.0.1:1", "[::1]:2")),
        (values.pattern, "a.*", re.compile("a.*")),
        (values.pattern, "a-.{1,2}, b,", re.compile("(?:a-.{1,2})|(?:b)")),
        (values.milliseconds, "90 s", 90_000),
        (values.milliseconds, "0ms", 0),
        (values.milliseconds, "2h", 7_200_000),
        (values.instant, "0", 0),
        (values.instant, "253402300799999", 253_402_300_799_999),
        (values.instant, "1970-01-01T00:00:01", 1000),
        (values.instant, "1970-01-01T01:00:00.001+01:00", 1),
        (values.offsets("latest"), "LATEST", "latest"),
        (
            values.offsets("latest"),
            ' {"T":{"b":{"1":-1,"0":5}}}',
            {MessageQueue("T", "b", 1): -1, MessageQueue("T", "b", 0): 5},
        ),
        (values.queue_numbers, '{"T":{}}', {}),
        (values.queue_ids, '{"T":{"b":[1,1]}}', {MessageQueue("T", "b", 1)}),
        (values.only_choice("now", "later"), "NOW", "now"),
    ],
)
def test_what_is_accepted(parse, written, expected):
    assert parse(written) == expected


@pytest.mark.parametrize(
    ("parse", "written", "advice"),
    [
        (values.text, "  ", "it is empty"),
        (values.flag, "1", "write true or false"),
        (values.one_of("a", "b"), "c", "write a or b"),
        (values.whole_between(1), "0", "a whole number of at least 1$"),
        (values.whole_between(1, 9), "10", "of at least 1, at most 9"),
        (values.whole_between(1), "9" * 23, "of at least 1, at most 9223372036854775807$"),
        (values.whole_between(1), "9" * 5000, "of at least 1, at most 9223372036854775807$"),
        (values.milliseconds, "9" * 23 + "s", "write a duration"),
        (values.whole_between(1), "1.5", "a whole number"),
        (values.whole_between(1), "\u0663", "a whole number"),
        (values.milliseconds, "\u0663s", "write a duration"),
        (values.instant, "\u0663", "write milliseconds"),
        (values.addresses, "a:\u0663", "write host:port"),
        (values.queue_numbers, '{"T":{"b":{"\u0663":1}}}', "write JSON as"),
        (values.whole_between(1), "", "a whole number"),
        (values.names, ",", "commas"),
        (values.addresses, "host", "host:port"),
        (values.addresses, "host:123456", "host:port"),
        (values.addresses, "a:1 b:2", "host:port"),
        (values.pattern, "(", "not a regular expression"),
        (values.pattern, "a,(", "not a regular expression"),
        (values.pattern, ",", "it is empty"),
        (values.milliseconds, "5 days", "15m"),
        (values.milliseconds, "-5", "15m"),
        (values.instant, "noon", "2026-01-31T08:00:00Z"),
        (values.instant, "202601311080000999", "write milliseconds since 1970"),
        (values.instant, "9" * 5000, "write milliseconds since 1970"),
        (values.offsets("latest"), "earliest", "write latest or JSON"),
        (values.offsets("latest"), "{", "it is not JSON"),
        (values.queue_numbers, "[]", "write JSON as"),
        (values.queue_numbers, '{"T":{"b":{"x":1}}}', "queue 'x'"),
        (values.queue_numbers, '{"T":{"b":{"0":1.5}}}', "has 1.5"),
        (values.queue_numbers, '{"T":{"b":{"0":-1}}}', "has -1"),
        (values.queue_numbers, '{"T":{"b":{"0":9223372036854775808}}}', "has 9223372036854775808"),
        (values.queue_ids, '{"T":{"b":{"0":1}}}', r'write JSON as \{"topic":\{"broker":\[0,1\]\}\}'),
        (values.queue_ids, '{"T":{"b":[-1]}}', "write JSON as"),
        (values.queue_ids, '{"T":{}}', "names no queue"),
        (values.only_choice("now", "later"), "later", "not supported yet; leave it at now"),
        (values.only_choice("now", "later"), "never", "write now or later"),
        (values.unsupported("no such luck"), "x", "no such luck"),
    ],
)
def test_what_is_refused_and_the_advice_given(parse, written, advice):
    with pytest.raises(ValueError, match=advice):
        parse(written)
