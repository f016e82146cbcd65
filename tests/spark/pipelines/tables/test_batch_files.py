"""sparrowmq.spark.pipelines.tables.batch_files: Spark writes files for a table to take over."""

from threading import Event, Thread

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Layout
from sparrowmq.spark.pipelines.tables.batch_files import stage_rows

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("keeps", [True, False])
def test_there_are_files_for_each_day_and_what_was_left_is_gone(spark, tmp_path, keeps):
    folder = tmp_path / "staged"
    folder.mkdir()
    (folder / "left.parquet").write_bytes(b"of an attempt that died")
    rows = spark.sql("select id, date_add(date'2026-01-31', cast(id % 2 as int)) _day from range(10)")
    staged = stage_rows(rows, folder, "writer-7", Layout(BY_DAY, keeps))
    assert staged.rows == 10
    assert staged.schema.names == ["id", "_day"]
    assert {file.partition for file in staged.files} == {"_day=2026-01-31", "_day=2026-02-01"}
    assert len({file.name for file in staged.files}) == len(staged.files)
    for file in staged.files:
        assert file.name.startswith(f"{file.partition}/writer-7-")
        assert file.path is not None and file.size == file.path.stat().st_size
        assert pq.read_schema(file.path).names == (["id", "_day"] if keeps else ["id"])
        parity = {number % 2 for number in pq.ParquetFile(file.path).read(["id"])["id"].to_pylist()}
        assert parity == {int(file.partition != "_day=2026-01-31")}
    assert not (folder / "left.parquet").exists()


def test_a_batch_without_rows_has_no_files(spark, tmp_path):
    staged = stage_rows(
        spark.sql("select 1 id, current_date() _day where false"), tmp_path / "s", "w", Layout(BY_DAY, False)
    )
    assert (staged.rows, staged.files) == (0, [])


def test_workers_of_a_driver_that_died_may_still_write_there(spark, tmp_path):
    folder, over = tmp_path / "staged", Event()

    def left_behind():
        while not over.wait(0.001):
            (folder / "_temporary" / "0").mkdir(parents=True, exist_ok=True)

    zombie = Thread(target=left_behind)
    zombie.start()
    try:
        staged = stage_rows(spark.sql("select 1 id, current_date() _day"), folder, "w", Layout(BY_DAY, True))
    finally:
        over.set()
        zombie.join()
    assert [pq.ParquetFile(file.path).metadata.num_rows for file in staged.files] == [1]
