"""sparrowmq.spark.pipelines.lake.lake: what a pipeline relies on, in every format."""

import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

import pyarrow as pa

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address, Catalog
from sparrowmq.spark.pipelines.lake.lake import TableLocation, new_fields, open_lake
from sparrowmq.spark.pipelines.lake.spark_reader import list_files
from tests.spark.pipelines.lake.s3 import RemoteTable
from tests.spark.pipelines.lake.tables import DAY, KINDS, Table


@pytest.fixture(params=KINDS)
def table(tmp_path, request):
    return Table(tmp_path, request.param)


def test_a_table_grows_by_batches_and_knows_the_last(table):
    assert (table.open().last_batch(), table.open().columns(), table.rows()) == (-1, {}, [])
    table.add(0, 1, 2, 3)
    table.add(1, 4, 5, files=2)
    table.add(7, 6)
    assert table.open().last_batch() == 7
    assert table.numbers() == [1, 2, 3, 4, 5, 6]
    assert set(table.open().columns()) == {"number", "_day"}
    assert table.rows()[0]["_day"] == date.fromisoformat(DAY)


def test_an_open_table_knows_what_it_was_just_given(table):
    lake = table.open()
    for batch in range(3):
        lake.commit(batch, table.staged(batch, batch))
        assert lake.last_batch() == batch
    assert table.numbers() == [0, 1, 2]


def test_new_columns_are_added_and_old_rows_lack_them(table):
    table.add(0, 1)
    table.add(1, 2, name="n", share=0.5)
    table.add(2, 3)
    assert [(row["number"], row["name"], row["share"]) for row in table.rows()] == [
        (1, None, None),
        (2, "n", 0.5),
        (3, None, None),
    ]


def test_a_run_that_comes_too_late_removes_no_file_of_the_batch_that_the_table_has(table):
    table.add(0, 1)
    late = table.open()
    staged = table.staged(1, 5)
    renamed = [replace(file, name=file.name.replace("-00000.", "-rival.")) for file in staged.files]
    table.open().commit(1, replace(staged, files=renamed))
    with pytest.raises((ConfigError, FileExistsError), match=r"another run|exists"):
        late.commit(1, table.staged(1, 2))
    assert table.numbers() == [1, 5]


def test_an_attempt_that_died_before_its_commit_leaves_no_rows(table, monkeypatch):
    """Dead where the book-keeping would begin: with all files in their places, or none of them."""
    table.add(0, 1)
    lake = table.open()
    target = {"parquet": "json.dump", "delta": "deltalake.DeltaTable.create_write_transaction"}
    with monkeypatch.context() as patch:
        patch.setattr(target.get(table.kind, "pyiceberg.table.Transaction.update_snapshot"), _die)
        with pytest.raises(_DeadError):
            lake.commit(1, table.staged(1, 2, 3, 4, files=3))
    if table.kind != "parquet":  # Its readers look into the folder, so nothing may be there before the commit.
        assert len(list(table.place.path.rglob(f"*{1:09}*.parquet"))) == 3
    assert table.numbers() == [1]
    assert table.open().last_batch() == 0
    table.add(1, 2, 3)
    assert table.numbers() == [1, 2, 3]
    assert len(list(table.place.path.rglob(f"*{1:09}*.parquet"))) == 1


def test_merged_files_have_about_the_size_that_was_asked_for(table):
    for batch in range(8):
        table.add(batch, batch)
    most = max(path.stat().st_size for path in table.open().paths())
    lake = open_lake(table.kind, replace(table.place, file_bytes=most * 9 // 2))
    lake.compact(date(2099, 1, 1))
    assert len(table.open().paths()) == 2
    table.open().compact(date(2099, 1, 1))
    assert len(table.open().paths()) == 1
    assert table.numbers() == list(range(8))


class _DeadError(Exception):
    pass


def _die(*_args, **_given):
    raise _DeadError


def test_what_a_format_needs_is_told(tmp_path):
    code = (
        "import sys; sys.modules['deltalake'] = None\n"
        "from pathlib import Path\n"
        "from sparrowmq.spark.pipelines.lake.lake import open_lake, TableLocation\n"
        "open_lake('delta', TableLocation(Path('t'), Path('t.state'), 'w'))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert "ConfigError: format delta needs the package deltalake: pip install 'sparrowmq[lake]'" in found.stderr
    assert ConfigError.__name__ in found.stderr


NAMES = ["my lake", "ns%orders", "a%20b", "f\u00fcr+alle", "a#b", "a?b"]
REFUSED = {
    ("delta", "a%20b"): "with %20 in its name",
    ("iceberg", "a#b"): "with # in its name",
    ("iceberg", "a?b"): r"with \? in its name",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_table_may_be_in_a_folder_of_any_name_or_says_what_to_do(tmp_path, table, name):
    """As a path, and as an address whose name is encoded; Iceberg also in a catalog that others share."""
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'shared.db'}"}
    path, state = tmp_path / name / "orders", tmp_path / name / "state"
    path.parent.mkdir()
    places = [path, Address(path.with_name("remote").as_uri(), state)]
    if table.kind == "iceberg":
        places.append(Address(path.with_name("shared").as_uri(), state, Catalog("c", "shop.orders", options)))
    says = REFUSED.get((table.kind, name))
    for place in places:
        with pytest.raises(ConfigError, match=says) if says else nullcontext():
            if isinstance(place, Path):
                local = Table(path.parent, table.kind)
                local.add(0, 1)
                local.add(1, 2)
                assert local.numbers() == [1, 2]
            else:
                remote = RemoteTable(table.kind, place)
                remote.add(0, 1)
                remote.add(1, 2)
                assert remote.numbers() == [1, 2] and list_files(place).files


def test_the_columns_that_a_table_lacks(tmp_path):
    staged = Table(tmp_path, "parquet").staged(0, 1, name="n")
    assert [field.name for field in new_fields(staged.schema, {"number": pa.int64(), "_day": pa.date32()})] == ["name"]
    assert open_lake("parquet", TableLocation(tmp_path, tmp_path, "w")).last_batch() == -1
