"""sparrowmq.spark.pipelines.lake.compaction: a table whose columns become wider keeps its rows, even after a kill."""

import os
from decimal import Decimal

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

import pyarrow as pa
from deltalake import DeltaTable

from sparrowmq.spark.pipelines.lake.compaction import can_widen, rewrite_files, widen_columns
from tests.spark.pipelines.lake.tables import KINDS, Table, as_all_see_it


@pytest.fixture(params=KINDS)
def table(tmp_path, request):
    return Table(tmp_path, request.param)


def schema(**kinds):
    return pa.schema([(name, getattr(pa, kind)()) for name, kind in kinds.items()])


def rewriting(table, kinds):
    return widen_columns(table.open(), kinds, table.place.state / "rewritten")


def settings_of(table):
    """The properties that the format keeps with the table."""
    if table.kind == "delta":
        return DeltaTable(str(table.place.path)).metadata().configuration
    return {}


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (pa.float64(), [5.0, 6.0, 7.0]),
        (pa.string(), ["5", "6", "7"]),
        (pa.decimal128(38, 0), [Decimal(5), Decimal(6), Decimal(7)]),
    ],
)
def test_a_column_becomes_wider_and_its_values_stay(table, kind, wanted):
    table.add(0, 1, amount=5)
    table.add(1, 2, amount=6, more="m")
    table.add(2, 3, amount=7, within={"a": 1})
    settings = settings_of(table)
    assert rewriting(table, pa.schema([("amount", kind), ("more", pa.string())])) == ["amount"]
    assert [row["amount"] for row in table.rows()] == wanted
    assert [row["more"] for row in table.rows()] == [None, "m", None]
    assert [row["within"] for row in table.rows()] == [None, None, {"a": 1}]
    assert table.open().last_batch() == 2
    assert settings_of(table) == settings
    assert rewriting(table, pa.schema([("amount", kind)])) == []
    table.open().commit(3, table.staged(3, 4, amount=wanted[0], more="n", within={"a": 2, "b": "x"}))
    assert [row["amount"] for row in table.rows()] == [*wanted, wanted[0]]
    assert [row["within"] for row in table.rows()][2:] == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert not (table.place.state / "rewritten").exists()


@pytest.mark.slow
def test_all_readers_read_a_table_whose_types_became_wider(table, spark):
    table.add(0, 1, amount=5, of=[{"x": 1}])
    table.add(1, 2, amount=6, of=[{"x": 2, "y": True}], more=1)
    wide = pa.schema([("amount", pa.float64()), ("of", pa.list_(pa.struct([("x", pa.string()), ("y", pa.bool_())])))])
    assert rewriting(table, wide) == ["amount", "of"]
    table.add(2, 3, amount=5.5, of=[{"x": "x", "y": False, "z": 1}], more=2)
    wanted = {
        1: (5.0, [{"x": "1", "y": None, "z": None}], None),
        2: (6.0, [{"x": "2", "y": True, "z": None}], 1),
        3: (5.5, [{"x": "x", "y": False, "z": 1}], 2),
    }
    for reader, rows in as_all_see_it(spark, table.kind, table.place.path, table.place.state).items():
        found = {row["number"]: (row["amount"], row["of"], row["more"]) for row in rows.to_pylist()}
        assert (reader, found) == (reader, wanted)


class _DeadError(Exception):
    pass


def _die(*_args, **_given):
    raise _DeadError


@pytest.mark.parametrize("calls", range(4))
def test_a_rewriting_that_dies_at_any_step_leaves_all_rows_once(table, monkeypatch, calls):
    """Dead before a step of the commit: at the files, and at what the format does at its end."""
    for number in range(3):
        table.add(number, number, amount=number)
    writing = "pyarrow.parquet.ParquetWriter.write_batch"
    steps = {
        "parquet": [
            "json.dump",
            "os.replace",
            writing,
            "pathlib.Path.unlink",
        ],
        "delta": [
            "os.replace",
            "deltalake.DeltaTable.create_write_transaction",
            writing,
            "os.replace",
        ],
        "iceberg": [
            "os.replace",
            "pyiceberg.catalog.sql.SqlCatalog.commit_table",
            writing,
            "pyiceberg.table.Transaction.update_snapshot",
        ],
    }[table.kind]
    target, left = steps[calls], 1 if steps[calls] == "os.replace" else 0
    module, name = target.rpartition(".")[0], target.rpartition(".")[2]
    real = os.replace

    def die_late(*args):
        nonlocal left
        if left == 0:
            raise _DeadError
        left -= 1
        return real(*args)

    wide = schema(amount="float64")
    with monkeypatch.context() as patch:
        patch.setattr(f"{module}.{name}", die_late if left else _die)
        with pytest.raises(_DeadError):
            rewriting(table, wide)
    table.open()  # the next start ends what was committed
    assert [row["amount"] for row in table.rows()] == [0, 1, 2]
    rewriting(table, wide)
    found = table.rows()
    assert [(row["number"], row["amount"], type(row["amount"])) for row in found] == [
        (number, float(number), float) for number in range(3)
    ]
    table.add(3, 9, amount=0.5)
    assert [row["amount"] for row in table.rows()] == [0, 1, 2, 0.5]


def test_a_table_says_whether_a_wider_type_holds_its_values(table):
    table.add(0, 1, amount=2**53, share=0.5)
    assert can_widen(table.open(), "amount", pa.float64())
    assert can_widen(table.open(), "absent", pa.float64())
    table.add(1, 2, amount=2**53 + 1, share=0.5)
    assert not can_widen(table.open(), "amount", pa.float64())
    assert can_widen(table.open(), "amount", pa.string())


def test_rows_that_are_left_out_take_their_files_with_them(table):
    table.add(0, 1, 2)
    table.add(1, 3)
    lake = table.open()
    files = rewrite_files(
        lake.partitions(),
        table.place.state / "rewritten",
        lambda rows: rows.filter(pa.compute.less(rows["number"], 2)),
    )
    assert [file.rows for file in files] == [1]
    staged = table.staged(9, 0)
    lake.rewrite(type(staged)(files, staged.schema))
    assert table.numbers() == [1]
    assert len(table.open().paths()) == 1
    files = rewrite_files(table.open().partitions(), table.place.state / "rewritten", lambda rows: rows.slice(0, 0))
    table.open().rewrite(type(staged)(files, staged.schema))
    assert table.numbers() == []
    table.add(2, 4)
    assert (table.numbers(), table.open().last_batch()) == ([4], 2)
