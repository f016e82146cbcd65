"""sparrowmq.spark.pipelines.tables.json_fields: which columns JSON bodies have."""

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.pipelines.tables.json_fields import fields_of, split_outside

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def found(spark, *bodies):
    return fields_of(spark.createDataFrame([(body,) for body in bodies], "body binary"))


def test_each_field_has_the_type_of_its_values(spark):
    body = b'{"id":1,"name":"n","price":1.5,"ok":true,"none":null,"list":[1,{"a":2}],"within":{"a":{}},"big":1e300}'
    assert found(spark, body, b"no json", b"[1]", b"", None, b'{"late":7,"id":2}') == {
        "big": "double",
        "id": "bigint",
        "late": "bigint",
        "list": "string",
        "name": "string",
        "ok": "boolean",
        "price": "double",
        "within": "string",
    }


def test_what_differs_within_a_batch_stays_text(spark):
    assert found(spark, b'{"a":1,"b":1}', b'{"a":"x","b":2.5}') == {"a": "string", "b": "double"}


def test_names_may_be_anything(spark):
    assert found(spark, b'{"a b":1,"c:d":"x","e`f":true,"g,h":1.5,"<":2}') == {
        "<": "bigint",
        "a b": "bigint",
        "c:d": "string",
        "e`f": "boolean",
        "g,h": "double",
    }


def test_without_objects_there_are_no_fields(spark):
    assert found(spark, b"1", b'"x"', b"{}") == {}
    assert found(spark) == {}


def test_commas_within_brackets_and_quotes_do_not_part():
    assert list(split_outside("a: DECIMAL(2,1), `b,c`: ARRAY<OBJECT<x: VOID, y: VOID>>")) == [
        "a: DECIMAL(2,1)",
        "`b,c`: ARRAY<OBJECT<x: VOID, y: VOID>>",
    ]
    assert list(split_outside("")) == []
