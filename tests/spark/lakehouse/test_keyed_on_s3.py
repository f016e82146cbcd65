"""Tables with a key on S3 and in a catalog: the driver reads and replaces files there."""

from __future__ import annotations

import uuid

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from sparrowmq.spark.pipelines.tables.batch_files import UploadTarget
from tests.spark.lakehouse.test_keyed_batch import KilledError, Orders, Run, killed, play
from tests.spark.lakehouse.test_replaced_files import STAY_S, Clock, replace_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=pytest.mark.slow), "catalog"])
def where(request, s3, tmp_path):
    """The address of a lake, and the settings of its tables."""
    found = {"format": request.param, "state": f"{tmp_path}/state/{{topic}}"}
    if request.param == "catalog":
        found["format"] = "iceberg"
        found |= {"catalog": "shared", "table": "shop.{topic}"}
        found["catalog_options"] = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'shared.db'}"}
    return f"s3://bucket/{uuid.uuid4().hex}", found


def started(where, orders, **more):
    to, given = where
    return Run(
        to,
        given["format"],
        orders,
        **{name: each for name, each in given.items() if name != "format"},
        **more,
    )


def files(run):
    storage = run.table.root.storage
    return {storage.relative(each.path) for each in storage.list() if each.path.endswith(".parquet")}


def test_the_last_message_of_a_key_is_its_row_and_no_staged_file_stays(where):
    orders = Orders()
    for key in range(6):
        orders.put(key, key)
    run = started(where, orders)
    run.batch()
    orders.put(0, 7)
    orders.put(1, deletes="body")
    orders.put(2, deletes="property")
    orders.put(3, is_bad=True)
    run.batch()
    run.check(where[1]["format"])
    run.table.close()
    run = started(where, orders)
    orders.put(4, 9)
    run.batch()
    run.check(where[1]["format"])
    has = {str(path) for path in run.table._open_lakes()[0].paths()}
    assert has < files(run) and len(files(run) - has) == 2  # each later batch has replaced one
    run.table.close()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_kills_and_repeats_leave_the_last_row_of_each_key(where, seed):
    to, given = where
    play(to, given.pop("format"), seed, 3, **given)


def test_replaced_files_go_when_readers_had_time_to_end(where):
    clock, orders = Clock(), Orders()
    run = started(where, orders, clock=clock, replaced_stay_s=STAY_S)
    for value in range(6):
        clock.now_s += STAY_S / 2
        replace_all(run, value)
    assert len(files(run)) <= 4
    run.check(where[1]["format"])
    run.table.close()


def test_an_upload_that_fails_leaves_the_table_as_it_was(where, monkeypatch):
    orders = Orders()
    run = started(where, orders)
    replace_all(run, 1)
    there, uploaded = files(run), UploadTarget.upload_files

    def fail(target, staged):
        """The driver's upload, and not that of a worker."""
        return killed() if any("keyed" in str(file.path) for file in staged) else uploaded(target, staged)

    with monkeypatch.context() as patch:
        patch.setattr(UploadTarget, "upload_files", fail)
        with pytest.raises(KilledError):
            replace_all(run, 2)
    assert there == files(run)
    run.table.release_files()
    run.batch()
    run.check(where[1]["format"])
    run.table.close()
