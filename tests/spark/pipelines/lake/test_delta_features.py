"""sparrowmq.spark.pipelines.lake.delta: no row is added that readers of a table would not see as it is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("duckdb")

from deltalake import DeltaTable

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.delta import delta_files
from tests.spark.pipelines.lake.tables import Table


@pytest.fixture
def table(tmp_path):
    table = Table(tmp_path, "delta")
    table.add(0, 1)
    return table


def alter(table, protocol, **settings):
    """Change settings and features as Spark does; deltalake cannot set all of them."""
    log = table.place.folder / "_delta_log"
    meta = next(
        each["metaData"]
        for path in sorted(log.glob("*.json"), reverse=True)
        for each in map(json.loads, path.read_text().splitlines())
        if "metaData" in each
    )
    meta["configuration"] |= settings
    schema = json.loads(meta["schemaString"])
    for number, field in enumerate(schema["fields"]):
        mapped = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": field["name"]}
        field["metadata"] |= mapped
    meta["schemaString"] = json.dumps(schema)
    version = DeltaTable(str(table.place.folder)).version() + 1
    actions = [{"protocol": protocol}, {"metaData": meta}, {"commitInfo": {"operation": "SET TBLPROPERTIES"}}]
    (log / f"{version:020}.json").write_text("".join(json.dumps(each) + "\n" for each in actions))


def with_mapping(table):
    alter(
        table,
        {"minReaderVersion": 2, "minWriterVersion": 5},
        **{"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"},
    )


def with_vectors(table):
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "appendOnly"]}
    alter(
        table,
        {"minReaderVersion": 3, "minWriterVersion": 7} | features,
        **{"delta.enableDeletionVectors": "true"},
    )


def with_constraint(table):
    DeltaTable(str(table.place.folder)).alter.add_constraint({"small": "number < 5"})


def with_new_feature(table):
    alter(
        table,
        {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["typeWidening"],
            "writerFeatures": ["typeWidening", "appendOnly", "invariants"],
        },
        **{"delta.enableTypeWidening": "true"},
    )


@pytest.mark.parametrize(
    ("altered", "why"),
    [
        (with_mapping, r"gave .*table column mapping, .*; let it set delta.columnMapping.mode to none again"),
        (
            with_constraint,
            r"gave .*table the constraint small, .* not checked; drop it \(ALTER TABLE ... DROP",
        ),
        (with_new_feature, r"gave .*table features .* written here: TypeWidening; drop them \(ALTER TABLE"),
    ],
)
@pytest.mark.parametrize("is_open", [True, False], ids=["an open table", "a start"])
def test_a_table_with_a_feature_that_readers_rely_on_gets_no_rows(table, altered, why, is_open):
    lake = table.open()
    altered(table)
    lake = lake if is_open else table.open()
    lake.record()
    with pytest.raises(ConfigError, match=why):
        lake.commit(1, table.staged(1, 7))
    assert not any("7" in path.name for path in table.place.folder.glob("*/*000000001*"))


@pytest.mark.parametrize(
    ("altered", "why"),
    [
        (with_mapping, "column mapping, so columns may have other names"),
        (with_vectors, r"deletion vectors, .* take these out \(REORG TABLE .* DROP FEATURE deletionVectors"),
    ],
)
def test_files_that_are_not_what_readers_see_are_not_read_nor_replaced(table, altered, why):
    lake, staged = table.open(), table.staged(1, 7)
    (old,) = lake.paths()
    altered(table)
    lake.record()
    with pytest.raises(ConfigError, match=why):
        lake.rewrite(staged)
    with pytest.raises(ConfigError, match=why):
        lake.commit(1, replace(staged, removed=[old]))
    with pytest.raises(ConfigError, match=why):
        delta_files(str(table.place.folder), table.place.partitioning)


def test_a_table_with_deletion_vectors_gets_further_rows(table):
    with_vectors(table)
    table.add(1, 7)
    assert table.open().last_batch() == 1


def test_a_table_goes_on_when_the_feature_is_taken_off(table):
    with_constraint(table)
    lake = table.open()
    with pytest.raises(ConfigError, match="the constraint small"):
        lake.commit(1, table.staged(1, 7))
    DeltaTable(str(table.place.folder)).alter.drop_constraint("small")
    table.add(1, 7)
    assert table.numbers() == [1, 7]
