"""sparrowmq.spark.pipelines.tables.json_bodies: columns that are added and get wider, and names that clash."""

from typing import Any

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.pipelines.tables.ddl import type_of
from sparrowmq.spark.pipelines.tables.json_bodies import (
    MAX_COLUMNS,
    ColumnCheck,
    count_columns,
    fields_in,
    json_columns,
    merge_body_fields,
)

OWN = ("_mq", "_day")


def grown(known, *bodies, long=(), type_changes="any"):
    return json_columns(fields_in(bodies), known, OWN, long, type_changes=type_changes)


@pytest.mark.parametrize(
    ("known", "value", "wider"),
    [
        ("bigint", b"5.5", "double"),
        ("bigint", b"18446744073709551615", "decimal(38,0)"),
        ("bigint", b'"x"', "string"),
        ("bigint", b"true", "string"),
        ("bigint", b"null", "bigint"),
        ("bigint", b"9007199254740993", "bigint"),
        ("decimal(38,0)", b"5", "decimal(38,0)"),
        ("decimal(38,0)", b"5.5", "string"),
        ("double", b"5", "double"),
        ("double", b"9007199254740993", "string"),
        ("double", b'"x"', "string"),
        ("string", b"5", "string"),
        ("boolean", b"5", "boolean"),
        ("struct<a:bigint>", b"5", "struct<a:bigint>"),
        ("struct<a:bigint>", b'{"a":5.5}', "struct<a:double>"),
        ("struct<b:bigint>", b'{"a":5.5}', "struct<b:bigint,a:double>"),
        ("array<bigint>", b"[5.5]", "array<double>"),
        ("array<bigint>", b"5", "array<bigint>"),
        ("array<struct<a:bigint>>", b'[{"a":"x","b":[1]}]', "array<struct<a:string,b:array<bigint>>>"),
    ],
)
def test_a_column_gets_the_type_that_holds_old_and_new_values(known, value, wider):
    assert grown({"a": known}, b'{"a":%s}' % value) == {"a": wider}


@pytest.mark.parametrize(
    ("known", "values", "wider"),
    [
        ("bigint", [b'"poison"', b"true", b"9" * 44, b"1e400", b"{}", b"[]"], "bigint"),
        ("bigint", [b'"poison"', b"5.5"], "double"),  # one text keeps no number out
        ("bigint", [b"9" * 20, b'"poison"'], "decimal(38,0)"),
        ("bigint", [b"9007199254740993", b"5.5"], "bigint"),
        ("decimal(38,0)", [b"5.5"], "decimal(38,0)"),
        ("double", [b"9007199254740993", b'"x"'], "double"),
        ("struct<a:bigint>", [b'{"a":"x"}', b'{"a":5.5,"b":"new"}'], "struct<a:double,b:string>"),
        ("array<bigint>", [b'["x"]', b"[5.5]"], "array<double>"),
    ],
)
def test_a_column_of_numbers_becomes_text_only_where_the_table_allows_it(known, values, wider):
    bodies = [b'{"a":%s}' % value for value in values]
    assert grown({"a": known}, *bodies, type_changes="widen") == {"a": wider}
    assert grown({"a": known}, *reversed(bodies), type_changes="widen") == {"a": wider}
    parts = [fields_in([body]) for body in bodies]
    assert json_columns(merge_body_fields(parts), {"a": known}, OWN) == {"a": wider}


def test_a_column_with_integers_that_no_double_holds_stays_one_of_integers():
    assert grown({"a": "bigint"}, b'{"a":5.5}', long=["a"], type_changes="widen") == {"a": "bigint"}


def test_a_column_with_integers_that_no_double_holds_becomes_text():
    assert grown({"a": "bigint"}, b'{"a":5.5}', long=["a"]) == {"a": "string"}
    assert grown({"a": "struct<b:bigint>"}, b'{"a":{"b":5.5}}', long=["a"]) == {"a": "struct<b:string>"}
    assert grown({"a": "bigint"}, b'{"a":5}', long=["a"]) == {"a": "bigint"}


def test_of_names_that_differ_by_case_the_one_that_is_met_more_often_is_the_column():
    assert grown({}, b'{"ORDER":1}', b'{"order":1}', b'{"order":2}') == {"order": "bigint"}
    assert grown({}, b'{"_DAY":1,"_Mq":1,"":1,"a":1}') == {"a": "bigint"}
    assert grown({"order": "bigint"}, *[b'{"ORDER":1.5}'] * 9) == {"order": "bigint"}
    assert grown({}, b'{"a":{"x":1,"X":2}}', b'{"a":{"X":2}}') == {"a": "struct<X:bigint>"}
    assert grown({"a": "struct<x:bigint>"}, b'{"a":{"X":2}}') == {"a": "struct<x:bigint>"}


def test_names_that_no_column_can_have_are_none():
    assert grown({}, b'{"\\ud800":1,"a\\u0000b":1,"a":{"\\udfff":1}}', b'{"b":1}') == {"b": "bigint"}


def test_names_that_readers_write_alike_are_one_column():
    assert grown({}, b'{"a":{"b":1},"a.b":2}', b'{"a":{"b":1}}') == {"a": "struct<b:bigint>"}
    assert grown({}, b'{"a":{"b":1},"A.b":2}', b'{"A.b":1}') == {"A.b": "bigint"}
    assert grown({}, b'{"a":[{"b":1}],"a.element":1}', b'{"a":[]}') == {"a": "array<struct<b:bigint>>"}
    assert grown({"a": "array<bigint>"}, b'{"a.element":1}') == {"a": "array<bigint>"}


def test_a_table_has_no_more_columns_than_it_can_bear():
    flat = [b'{"f%05d":1}' % number for number in range(MAX_COLUMNS + 5)]
    assert len(grown({}, *flat)) == MAX_COLUMNS
    (kind,) = grown({}, *(b'{"a":[%s]}' % body for body in flat)).values()
    assert count_columns([type_of(kind)]) == MAX_COLUMNS
    full = {f"c{number}": "struct<a:bigint>" for number in range(MAX_COLUMNS // 2)}
    assert grown(full, b'{"c0":{"b":1},"more":1}') == full


def test_a_field_without_a_column_is_refused_by_its_reason():
    kinds = {
        "order": type_of("bigint"),
        "at": type_of("struct<x:bigint>"),
        "lines": type_of("array<struct<sku:string>>"),
        "text": type_of("string"),
    }
    why = ColumnCheck(kinds, OWN).lost_field
    fits: list[dict[str, Any]] = [
        {"order": 1, "at": {"x": 1, "y": None, "X": {}}, "lines": [{"sku": "a"}, {}], "text": {"": 1}},
        {"ORDER": None, "more": [], "at": 5, "lines": 6},
    ]
    assert [why(each) for each in fits] == ["", ""]
    refused: list[tuple[dict[str, Any], str]] = [
        ({"order": 1, "ORDER": 2}, "the field ORDER and the column order differ only in case"),
        ({"_Day": 2}, "the field _Day and the column _day differ only in case"),
        ({"at": {"X": 1}}, "the field at.X and the column at.x differ only in case"),
        ({"lines": [{}, {"SKU": 1}]}, "the field lines[1].SKU and the column lines[1].sku differ only in case"),
        ({"": 2}, "a field has no name"),
        ({"at": {"": 2}}, "a field of at has no name"),
        ({"new": {"": 2}}, "a field of new has no name"),
        ({"\ud800": 2}, "a field has a null character, or half of a character, in its name"),
        ({"lines": [{"a\0": 2}]}, "a field of lines[0] has a null character"),
        ({"at.x": 2}, "the field at.x has the name of another one, written with dots"),
    ]
    for fields, reason in refused:
        assert why(fields).startswith(reason), fields
    full = {f"c{number}": type_of("bigint") for number in range(MAX_COLUMNS)}
    assert ColumnCheck(full, OWN).lost_field({"more": 2}) == "the table has 1,000 columns, and more is none of them"
