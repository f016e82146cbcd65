"""sparrowmq.spark.pipelines.tables.json_kinds: the columns that bodies need."""

from itertools import product

import pytest

from sparrowmq.spark.pipelines.tables.json_kinds import (
    MOST_COLUMNS,
    Kind,
    columns,
    found_in,
    joined,
    merged,
    refused,
)

OWN = ("_mq", "_day")


def found(*bodies):
    return columns(found_in(bodies), {}, OWN)


def test_each_field_has_the_type_of_its_values():
    body = b'{"id":1,"name":"n","price":1.5,"ok":true,"none":null,"list":[1,{"a":2}],"within":{"a":{}},"big":1e300}'
    assert found(body, b"no json", b"[1]", b"", None, b'{"late":7,"id":2}') == {
        "big": "double",
        "id": "bigint",
        "late": "bigint",
        "list": "string",
        "name": "string",
        "ok": "boolean",
        "price": "double",
        "within": "string",
    }


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (b"1", b"2.5", "double"),
        (b"1", b'"x"', "string"),
        (b"1", b"true", "string"),
        (b"null", b"true", "boolean"),
        (b"18446744073709551615", b"18446744073709551614", "decimal(38,0)"),
        (b"9007199254740993", b"1", "bigint"),
        (b"9007199254740993", b"1.5", "string"),
        (b"1" + b"0" * 38, b"1", "string"),
        (b"1e400", b"1.5", "string"),
    ],
)
def test_two_values_have_the_narrowest_type_that_holds_both_exactly(one, other, kind):
    bodies = b'{"a":%s}' % one, b'{"a":%s}' % other
    assert found(*bodies) == found(*reversed(bodies)) == {"a": kind}


def test_the_type_does_not_depend_on_the_order_of_values():
    for one, two, three in product(Kind, repeat=3):
        assert joined(joined(one, two), three) == joined(one, joined(two, three))
        assert joined(one, two) == joined(two, one)


def test_what_workers_found_is_the_same_as_what_one_finds():
    bodies = [b'{"a":1,"b":"x"}', b'{"a":2.5}', b'{"c":true,"a":null}', b'{"b":1}']
    assert merged([found_in(bodies[:1]), found_in(bodies[1:3]), found_in(bodies[3:])]) == found_in(bodies)


def test_of_names_that_differ_by_case_the_one_that_is_met_more_often_is_the_column():
    assert found(b'{"ORDER":1}', b'{"order":1}', b'{"order":2}') == {"order": "bigint"}
    assert found(b'{"_DAY":1,"_Mq":1,"":1,"a":1}') == {"a": "bigint"}
    assert columns(found_in([b'{"ORDER":1.5}'] * 9), {"order": "bigint"}, OWN) == {"order": "bigint"}


def test_a_table_has_no_more_columns_than_it_can_bear():
    fields = b",".join(b'"f%05d":1' % number for number in range(MOST_COLUMNS + 5))
    assert len(found(b"{%s}" % fields)) == MOST_COLUMNS


def test_a_field_without_a_column_is_refused_by_its_reason():
    names = {"order": "bigint"}
    by_lower = {"order": "order", "_day": "_day"}
    assert refused({"order": 1}, names, by_lower) == ""
    assert refused({"ORDER": None}, names, by_lower) == ""
    assert refused({"order": 1, "ORDER": 2}, names, by_lower).startswith(
        "the field ORDER and the column order are one"
    )
    assert refused({"_Day": 2}, names, by_lower).startswith("the field _Day and the column _day are one")
    assert refused({"": 2}, names, by_lower) == "a field has no name"
    assert refused({"more": 2}, names, by_lower) == "the table has 1,000 columns, and more is none of them"
