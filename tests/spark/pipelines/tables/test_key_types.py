"""sparrowmq.spark.pipelines.tables.partition_columns: which columns can be a key."""

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.pipelines.tables.ddl import type_of
from sparrowmq.spark.pipelines.tables.partition_columns import key_fault


@pytest.mark.parametrize("ddl", ["tinyint", "int", "bigint", "decimal(38,0)", "string", "date", "binary"])
def test_whole_numbers_texts_dates_and_decimals_can_be_a_key(ddl):
    assert key_fault("id", type_of(ddl)) == ""


@pytest.mark.parametrize("ddl", ["float", "double", "array<int>", "map<string,int>", "struct<a:int>"])
def test_other_types_say_what_to_choose(ddl):
    says = f"the key id has the type {ddl}; choose a column of integers or texts"
    assert key_fault("id", type_of(ddl)) == says
