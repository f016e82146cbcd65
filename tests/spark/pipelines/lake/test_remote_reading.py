"""sparrowmq.spark.pipelines.lake.spark_reader: the files and columns of a table, and rows as workers read them."""

import uuid
from datetime import date

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from sparrowmq.spark.pipelines.lake.spark_reader import ReadFiles, list_files
from tests.spark.pipelines.lake.s3 import DAY, table_at
from tests.spark.pipelines.lake.tables import KINDS

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=["s3", "file"])
def url(request, s3, tmp_path):
    return f"s3://bucket/{uuid.uuid4().hex}/orders" if request.param == "s3" else (tmp_path / "orders").as_uri()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_have_all_columns_and_their_day(url, tmp_path, kind):
    table = table_at(url, tmp_path / "state", kind)
    table.add(0, 1)
    table.add(1, 2, name="b")
    table.staged(1, 3)  # a file that no commit has
    found = list_files(table.root)
    assert len(found.files) == 2
    asked = [pa.RecordBatch.from_pydict({"name": list(found.files), "partition": list(found.files.values())})]
    rows = [row for batch in ReadFiles(table.root.storage, found.schema)(asked) for row in batch.to_pylist()]
    assert sorted((row["number"], row["name"], row["_day"]) for row in rows) == [
        (1, None, date.fromisoformat(DAY)),
        (2, "b", date.fromisoformat(DAY)),
    ]


def test_a_place_without_a_table_has_no_files(url, tmp_path):
    assert list(list_files(table_at(url, tmp_path, "parquet").root).files) == []
