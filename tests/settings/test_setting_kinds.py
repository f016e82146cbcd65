from enum import Enum
from pathlib import Path

import pytest

from sparrowmq.settings.setting_kinds import (
    ADDRESSES,
    BOOLEAN,
    PATH,
    TEXT,
    OutOfRange,
    choice,
    duration,
    integer,
    size,
)


class Flush(Enum):
    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


PORT = integer(0, 65535)
EVEN = size(1000, 1 << 30, multiple_of=20)
FILE = size(1024, 1 << 31)
TIMEOUT = duration("ms", 1, 60_000)
PERIOD = duration("ms", 10_000, 60_000)
KEPT = duration("h", 1, 10_000)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (PORT, "0", 0),
        (PORT, "65535", 65535),
        (FILE, "1048576", 1 << 20),
        (FILE, "1024k", 1 << 20),
        (FILE, "1M", 1 << 20),
        (FILE, "1 MiB", 1 << 20),
        (FILE, "1gb", 1 << 30),
        (EVEN, "6000000", 6_000_000),
        (choice(Flush), "async_flush", Flush.ASYNC),
        (BOOLEAN, "FALSE", False),
        (BOOLEAN, "1", True),
        (ADDRESSES, "a:9876; [::1]:9877;", ("a:9876", "[::1]:9877")),
        (ADDRESSES, "", ()),
        (TEXT, "broker-a", "broker-a"),
        (PATH, "${user.home}/store", Path.home() / "store"),
        (TIMEOUT, "250", 250),
        (TIMEOUT, "5s", 5000),
        (TIMEOUT, "1m", 60_000),
        (KEPT, "48", 48),
        (KEPT, "3d", 72),
    ],
)
def test_a_value_is_read_in_each_of_its_forms(kind, text, value):
    assert kind.parse(text) == value
    assert kind.parse(kind.render(value)) == value


@pytest.mark.parametrize(
    ("kind", "text", "allowed"),
    [
        (PORT, "abc", "a whole number from 0 to 65535"),
        (PORT, "65536", "a whole number from 0 to 65535"),
        (PORT, "-1", "a whole number"),
        (PORT, "", "a whole number"),
        (PORT, "1.5", "a whole number"),
        (PORT, "\u0663", "a whole number"),
        (PORT, "1_000", "a whole number"),
        (FILE, "\u0663m", "a size"),
        (TIMEOUT, "\u0663", "a number of milliseconds"),
        (TIMEOUT, "\u0663s", "a number of milliseconds"),
        (ADDRESSES, "a:\u0663", "host:port"),
        (FILE, "12 apples", "a size from 1k to 2g"),
        (FILE, "-1", "a size"),
        (FILE, "1", "from 1k"),
        (EVEN, "1001", "a multiple of 20"),
        (choice(Flush), "SOMETIMES", "SYNC_FLUSH or ASYNC_FLUSH"),
        (BOOLEAN, "maybe", "true or false"),
        (ADDRESSES, "nowhere", "host:port"),
        (ADDRESSES, "a:0", "host:port"),
        (ADDRESSES, "a:99999", "host:port"),
        (ADDRESSES, "http://a:1", "host:port"),
        (ADDRESSES, "a:1,b:2", "with ; between"),
        (PATH, "", "a path"),
        (PERIOD, "5s", "a number of milliseconds from 10000 to 60000, or a time such as 10s"),
        (KEPT, "5s", "a number of hours from 1 to 10000, or a time such as 3d"),
        (TIMEOUT, "soon", "a number of milliseconds from 1 to 60000, or a time such as 5s"),
        (TIMEOUT, "2h", "from 1 to 60000"),
        (KEPT, "90m", "a number of hours"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_and_what_is_allowed_can_be_told(kind, text, allowed):
    with pytest.raises(ValueError):
        kind.parse(text)
    assert allowed in kind.allowed


@pytest.mark.parametrize(
    ("kind", "value", "text"), [(BOOLEAN, True, "true"), (choice(Flush), Flush.SYNC, "SYNC_FLUSH")]
)
def test_a_value_is_written_as_java_writes_it(kind, value, text):
    assert kind.render(value) == text


@pytest.mark.parametrize(
    ("kind", "text", "nearest"),
    [
        (PORT, "65536", 65535),
        (PORT, "-1", 0),
        (EVEN, "1001", 1020),
        (EVEN, "999", 1000),
        (EVEN, "2g", (1 << 30) - 4),
        (FILE, "-1", 1024),
        (FILE, "3g", 1 << 31),
        (PERIOD, "5s", 10_000),
        (PERIOD, "-1", 10_000),
        (PERIOD, "2h", 60_000),
    ],
)
def test_a_number_out_of_its_range_names_the_nearest_one(kind, text, nearest):
    with pytest.raises(OutOfRange) as caught:
        kind.parse(text)
    assert caught.value.nearest == nearest == kind.parse(kind.render(nearest))
