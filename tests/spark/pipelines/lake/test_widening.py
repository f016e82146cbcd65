"""sparrowmq.spark.pipelines.lake.widening: wider types hold the same values."""

from decimal import Decimal
from itertools import product

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from sparrowmq.spark.pipelines.lake.widening import fits, grows, retypes, widen_values

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
OTHERS = [pa.bool_(), pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.string()]


def struct(**fields):
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *((one, other) for at, one in enumerate(INTEGERS) for other in INTEGERS[at + 1 :]),
        *((one, pa.float64()) for one in INTEGERS),
        *((one, pa.decimal128(38, 0)) for one in INTEGERS),
        *((one, pa.string()) for one in [*INTEGERS, pa.float32(), pa.float64(), pa.decimal128(5, 2)]),
        (pa.float32(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 2)),
        (pa.int64(), pa.decimal128(21, 2)),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())),
        (struct(a=pa.int64(), b=pa.bool_()), struct(b=pa.bool_(), c=pa.date32(), a=pa.float64())),
    ],
)
def test_a_wider_type_is_another_one_that_holds_all_values(old, new):
    assert fits(old, new)
    assert retypes(old, new)
    assert not fits(new, old)
    assert not retypes(new, old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *((one, other) for one, other in product(OTHERS, [*OTHERS, *INTEGERS]) if one != other),
        (pa.float64(), pa.int64()),
        (pa.float64(), pa.decimal128(38, 10)),
        (pa.float64(), pa.float32()),
        (pa.int32(), pa.float32()),
        (pa.int64(), pa.decimal128(20, 2)),
        (pa.decimal128(5, 2), pa.decimal128(6, 4)),
        (pa.decimal128(5, 2), pa.decimal128(9, 1)),
        (struct(a=pa.int64()), struct(b=pa.int64())),
        (struct(a=pa.int64()), pa.string()),
        (pa.list_(pa.int64()), pa.string()),
        (pa.list_(pa.int64()), struct(a=pa.int64())),
        (pa.map_(pa.string(), pa.int32()), struct(a=pa.int32())),
    ],
)
def test_other_types_never_change(old, new):
    assert not fits(old, new)
    assert not retypes(old, new)
    assert not grows(old, new)


def test_a_type_that_a_format_writes_in_another_way_is_the_same():
    for old, new in [
        (pa.string(), pa.large_string()),
        (pa.binary(), pa.large_binary()),
        (pa.list_(pa.field("element", pa.int64())), pa.large_list(pa.field("item", pa.int64(), False))),
        (pa.timestamp("us", "UTC"), pa.timestamp("ns", "Etc/UTC")),
        (pa.decimal128(38, 0), pa.decimal128(38, 0)),
    ]:
        assert (fits(old, new), retypes(old, new), grows(old, new)) == (True, False, False)


def test_a_struct_that_gets_fields_keeps_the_form_of_its_values():
    old = pa.list_(struct(a=pa.map_(pa.string(), struct(b=pa.int64()))))
    new = pa.list_(struct(a=pa.map_(pa.string(), struct(b=pa.int64(), c=pa.string()))))
    assert (fits(old, new), retypes(old, new), grows(old, new)) == (True, False, True)
    assert not grows(old, old)


@pytest.mark.parametrize(
    ("values", "old", "new", "wanted"),
    [
        ([1, None, -(2**53)], pa.int64(), pa.float64(), [1.0, None, -(2.0**53)]),
        ([2**63 - 1], pa.int64(), pa.decimal128(38, 0), [Decimal(2**63 - 1)]),
        ([-5, 2**63 - 1], pa.int64(), pa.string(), ["-5", "9223372036854775807"]),
        ([Decimal(10**37)], pa.decimal128(38, 0), pa.string(), ["1" + "0" * 37]),
        ([0.1, 2.5e300], pa.float64(), pa.string(), ["0.1", "2.5e+300"]),
        ([[], None, [1, None]], pa.list_(pa.int64()), pa.list_(pa.string()), [[], None, ["1", None]]),
    ],
)
def test_values_stay_what_they_are(values, old, new, wanted):
    found = widen_values(pa.array(values, old), new)
    found.validate(full=True)
    assert found.to_pylist() == wanted


def test_a_bigint_that_no_double_holds_is_refused():
    for value in (2**53 + 1, -(2**63)):
        with pytest.raises(pa.ArrowInvalid):
            widen_values(pa.array([{"a": [value]}], struct(a=pa.list_(pa.int64()))), struct(a=pa.list_(pa.float64())))


def test_parts_of_nested_values_are_widened_where_they_are():
    old = struct(a=pa.int64(), of=pa.list_(struct(x=pa.int64())), by=pa.map_(pa.string(), pa.int32()))
    new = struct(
        a=pa.float64(), of=pa.list_(struct(x=pa.string(), y=pa.bool_())), by=pa.map_(pa.string(), pa.int64()),
        more=pa.int64(),
    )  # fmt: skip
    values = [
        {"a": 1, "of": [{"x": 1}, None, {"x": None}], "by": [("k", 1)]},
        None,
        {"a": None, "of": None, "by": None},
        {"a": 4, "of": [], "by": []},
        {"a": 5, "of": [{"x": 9}], "by": [("k", None), ("l", 2)]},
    ]
    wanted: list[object] = [
        {
            "a": 1.0,
            "of": [{"x": "1", "y": None}, None, {"x": None, "y": None}],
            "by": [("k", 1)],
            "more": None,
        },
        None,
        {"a": None, "of": None, "by": None, "more": None},
        {"a": 4.0, "of": [], "by": [], "more": None},
        {"a": 5.0, "of": [{"x": "9", "y": None}], "by": [("k", None), ("l", 2)], "more": None},
    ]
    for begin, end in product(range(6), repeat=2):
        found = widen_values(pa.array(values, old)[begin:end], new)
        found.validate(full=True)
        assert found.to_pylist() == wanted[begin:end]
