"""sparrowmq.spark.pipelines.tables.error_retry: errors that fit now become rows once, also if a run is killed."""

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

import pyarrow as pa
import pyarrow.parquet as pq

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.lake import TableLocation, open_lake
from sparrowmq.spark.pipelines.lake.staged_files import Staged, StagedFile
from sparrowmq.spark.pipelines.tables import error_retry
from sparrowmq.spark.pipelines.tables.error_retry import Retry, finish_retry
from sparrowmq.spark.pipelines.tables.json_bodies import MAX_DEPTH
from sparrowmq.spark.pipelines.tables.log_parts import last_batches
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings, load_settings, save_settings, state_folder
from tests.spark.pipelines.lake.tables import KINDS, KINDS_AT_NIGHT, rows_of

STORED = datetime(2026, 1, 31, 23, tzinfo=UTC)
DAYS = ["2026-01-30", "2026-01-31"]
STORE_TIME = ("storeTimestamp", pa.timestamp("us", "UTC"))
MQ = pa.struct([("topic", pa.string()), ("queueId", pa.int32()), ("queueOffset", pa.int64()), STORE_TIME])
ROWS = pa.schema([("_mq", MQ), ("_day", pa.date32()), ("amount", pa.int64())])
ERRORS = pa.schema([("_mq", MQ), ("_day", pa.date32()), ("reason", pa.string()), ("body", pa.binary())])
BODIES = [b'{"amount":5.5}', b"no json", b'{"amount":7,"more":"m"}', b'{"AMOUNT":7}', b'{"amount":8.5}', b""]


def place(offset):
    return {"topic": "orders", "queueId": 0, "queueOffset": offset, "storeTimestamp": STORED}


def put(lake, root, batch, schema, rows):
    """Add rows, in a file for each day."""
    files = []
    for at, day in enumerate(DAYS):
        own = pa.Table.from_pylist([row for row in rows if row["_day"] == date.fromisoformat(day)], schema)
        if own.num_rows:
            path = state_folder(root) / f"staged-{at}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(own if lake.layout.keeps_columns else own.drop_columns("_day"), path)
            name = f"_day={day}/w-{batch:09}-{at:05}.parquet"
            files.append(StagedFile(path, name, f"_day={day}", own.num_rows, path.stat().st_size))
    lake.commit(batch, Staged(files, schema))


def opened(root, kind):
    state = state_folder(root)
    errors = root.with_name(f"{root.name}.errors")
    return (
        open_lake(kind, TableLocation(root, state, "w")),
        open_lake(kind, TableLocation(errors, state / "errors", "w")),
    )


def make(folder, kind, mode="json", fields=None, bodies=BODIES):
    """A table with one row, and with errors of two days in two batches."""
    root = folder / "orders"
    settled = TableSettings("orders", kind, mode, None, fields or {"amount": "bigint"}, writer="w", depth=MAX_DEPTH)
    save_settings(state_folder(root), settled)
    rows, errors = opened(root, kind)
    put(rows, root, 0, ROWS, [{"_mq": place(0), "_day": date.fromisoformat(DAYS[0]), "amount": 5}])
    for batch in range(2):
        found = [
            {
                "_mq": place(at + 1),
                "_day": date.fromisoformat(DAYS[at % 2]),
                "reason": "amount is no bigint",
                "body": body,
            }
            for at, body in enumerate(bodies)
            if at // (len(bodies) // 2) == batch
        ]
        put(errors, root, batch, ERRORS, found)
    return root


def seen(root, kind):
    """The table and its errors, by the places of messages."""
    state = state_folder(root)
    rows = rows_of(kind, root, state)
    errors = rows_of(kind, root.with_name("orders.errors"), state / "errors")
    found = {row["_mq"]["queueOffset"]: row["amount"] for row in rows}
    reasons = {row["_mq"]["queueOffset"]: (row["reason"], bytes(row["body"])) for row in errors}
    assert (len(found), len(reasons)) == (len(rows), len(errors))
    assert all(row["_mq"]["storeTimestamp"] == STORED for row in [*rows, *errors])
    assert all(str(row["_day"]) in DAYS for row in [*rows, *errors])
    return found, reasons


def retry(root):
    settled = load_settings(root)
    assert settled is not None
    return Retry(root, settled)


GOOD = {0: 5.0, 1: 5.5, 3: 7.0, 5: 8.5}
BAD = {
    2: ("the body is not JSON", b"no json"),
    4: (("the field AMOUNT and the column amount differ only in case, and most readers treat them as one; "
         "rename one of them"), b'{"AMOUNT":7}'),
    6: ("the body is empty", b""),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_errors_that_fit_now_become_rows_and_leave_the_errors(tmp_path, kind):
    root = make(tmp_path, kind)
    assert last_batches(state_folder(root)) == {}
    settled = load_settings(root)
    assert settled is not None
    looked = Retry(root, settled, is_read_only=True).count_fitting()
    assert (looked.fitting, looked.remaining) == (3, 3)
    assert len(seen(root, kind)[1]) == len(BODIES)
    tried = retry(root).run()
    assert (tried.fitting, tried.remaining, sorted(tried.reasons)) == (3, 3, sorted(why for why, _ in BAD.values()))
    assert seen(root, kind) == (GOOD, BAD)
    found = load_settings(root)
    assert found is not None and found.fields == {"amount": "double", "more": "string"}
    assert last_batches(state_folder(root)) == {"retried": 0}
    (state_folder(root) / "table.json").unlink()
    assert load_settings(root) == found  # its commits say it, too
    again = retry(root).run()
    assert (again.fitting, again.remaining) == (0, 3)
    assert seen(root, kind) == (GOOD, BAD)
    assert last_batches(state_folder(root)) == {"retried": 0}
    rows, errors = opened(root, kind)
    assert (rows.last_batch(), errors.last_batch()) == (0, 1)  # those of the stream


@pytest.mark.slow
def test_a_table_whose_errors_all_fit_has_none_left(tmp_path):
    for kind in KINDS:
        root = make(tmp_path / kind, kind, "schema", {"amount": "double"}, [b'{"amount":1.5}', b'{"amount":2}'])
        assert retry(root).run().fitting == 2
        assert seen(root, kind) == ({0: 5.0, 1: 1.5, 2: 2.0}, {})
        put(opened(root, kind)[1], root, 2, ERRORS, [
            {"_mq": place(9), "_day": date.fromisoformat(DAYS[0]), "reason": "x", "body": b"x"}
        ])  # fmt: skip
        assert seen(root, kind)[1] == {9: ("x", b"x")}


def test_a_table_of_messages_as_they_are_has_no_errors_to_try(tmp_path):
    with pytest.raises(ConfigError, match="is of mode raw; only the errors of the modes json and schema"):
        Retry(tmp_path / "t", TableSettings("orders", "parquet", "raw", None))


KILLED = """
import os, sys
from pathlib import Path
from sparrowmq.spark.pipelines.tables import error_retry
from sparrowmq.spark.pipelines.tables.table_settings import load_settings

left = int(sys.argv[2])
def trace(frame, event, arg):
    global left
    if "/sparrowmq/" not in frame.f_code.co_filename:
        return None
    if event == "line":
        left -= 1
        if left == 0:
            os._exit(9)
    return trace

root = Path(sys.argv[1])
settled = load_settings(root)
error_retry.finish_retry(root, settled)
sys.settrace(trace)
error_retry.Retry(root, settled).run()
print(int(sys.argv[2]) - left)
"""


def run_killed(root, lines):
    """A process that ends at once after so many lines of our code; returns what it said, and whether it was killed."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(root), str(lines)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode in (0, 9), done.stderr
    return done


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", KINDS_AT_NIGHT)
def test_kills_at_any_line_lose_and_double_nothing(tmp_path, kind):
    """SPARROWMQ_KILLS says how many, for longer runs."""
    lines = int(run_killed(make(tmp_path / "whole", kind), 10**9).stdout)
    kills = int(os.environ.get("SPARROWMQ_KILLS", "12"))
    for kill in range(kills):
        root = make(tmp_path / str(kill), kind)
        at = 1 + lines * kill // kills
        assert run_killed(root, at).returncode == 9
        settled = load_settings(root)
        assert settled is not None
        finish_retry(root, settled)
        found, rejected = seen(root, kind)
        assert sorted([*found, *rejected]) == list(range(len(BODIES) + 1)), at
        retry(root).run()
        assert seen(root, kind) == (GOOD, BAD), at


class _DeadError(Exception):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_retry_that_died_between_the_two_tables_is_finished_first(tmp_path, kind, monkeypatch):
    root = make(tmp_path, kind)
    with monkeypatch.context() as patch:
        patch.setattr(error_retry, "rewrite_files", _die)
        with pytest.raises(_DeadError):
            retry(root).run()
    found = rows_of(kind, root, state_folder(root))
    assert len(found) == len(GOOD)
    settled = load_settings(root)
    assert settled is not None
    settled.fields["amount"] = "string"  # wider than when the retry began
    finish_retry(root, settled)
    assert seen(root, kind) == (GOOD, BAD)
    assert json.loads((state_folder(root) / error_retry.PLAN_FILE).read_text())["is_done"]


def _die(*_args):
    raise _DeadError
