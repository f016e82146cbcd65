"""sparrowmq.spark.pipelines.running.checkpoint_files: damage that kills and power cuts leave in Spark's checkpoint."""

from __future__ import annotations

import json
import os
from zlib import crc32

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import BadStore
from sparrowmq.spark.pipelines.running.checkpoint_files import is_planned, repair, sync_plan

PLAN = 'v1\n{"batchWatermarkMs":0}\n{"v":1,"topics":{}}'
DONE = 'v1\n{"nextBatchWatermarkMs":0}'


def write(file, content):
    """A file with Hadoop's checksums."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    sums = b"crc\0" + (512).to_bytes(4, "big") + crc32(content.encode()).to_bytes(4, "big")
    file.with_name(f".{file.name}.crc").write_bytes(sums)


@pytest.fixture
def checkpoint(tmp_path):
    """Of a stream with two batches, of which the second one is not done."""
    folder = tmp_path / "checkpoint"
    write(folder / "metadata", '{"id":"7c1f"}')
    for batch in range(2):
        write(folder / "offsets" / str(batch), PLAN)
    write(folder / "commits" / "0", DONE)
    return folder


def files(checkpoint):
    return {str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file()}


def repaired(checkpoint, *, may_plan_again=True):
    """Return the files that a repair takes away, and how many lines it says."""
    before, said = files(checkpoint), list[str]()
    repair(checkpoint, lambda _batch: may_plan_again, said.append)
    return sorted(before - files(checkpoint)), len(said)


def test_a_whole_checkpoint_stays_as_it_is(tmp_path, checkpoint):
    assert repaired(tmp_path / "absent") == ([], 0)
    assert repaired(checkpoint) == ([], 0)
    for sums in (b"", b"crc\0", b"nonsense of a checksum"):  # Hadoop ignores them
        (checkpoint / "offsets" / ".1.crc").write_bytes(sums)
        assert repaired(checkpoint) == ([], 0)
    (checkpoint / "offsets" / "1").write_text("v2\nof a later Spark")
    (checkpoint / "offsets" / ".1.crc").unlink()
    assert repaired(checkpoint) == ([], 0)
    write(checkpoint / "offsets" / "1", 'v1\n{"batchWatermarkMs":0}\n-')
    assert repaired(checkpoint) == ([], 0)


@pytest.mark.parametrize(
    "content",
    ["", "\0" * len(PLAN), PLAN[:2], PLAN[:25], PLAN[:-1], PLAN.rpartition("\n")[0], PLAN.replace("0", "1")],
)
def test_a_damaged_last_plan_is_made_again(checkpoint, content):
    (checkpoint / "offsets" / "1").write_text(content)
    assert repaired(checkpoint) == (["offsets/.1.crc", "offsets/1"], 1)
    assert repaired(checkpoint) == ([], 0)


def test_a_damaged_plan_whose_messages_may_not_change_is_told(checkpoint):
    (checkpoint / "offsets" / "1").write_text("")
    with pytest.raises(BadStore, match=r"offsets/1 is damaged or gone.* restore .*checkpoint from a backup"):
        repaired(checkpoint, may_plan_again=False)
    assert is_planned(checkpoint)


def test_the_damaged_plan_of_a_done_batch_goes_with_the_word_that_it_is_done(checkpoint):
    write(checkpoint / "commits" / "1", DONE)
    (checkpoint / "offsets" / "1").write_text("")
    gone = ["commits/.1.crc", "commits/1", "offsets/.1.crc", "offsets/1"]
    assert repaired(checkpoint) == (gone, 1)


def test_a_damaged_plan_before_a_whole_one_is_told(checkpoint):
    (checkpoint / "offsets" / "0").write_text("")
    with pytest.raises(BadStore, match="offsets/0 is damaged or gone"):
        repaired(checkpoint)
    (checkpoint / "offsets" / "0").unlink()
    with pytest.raises(BadStore, match="offsets/0 is damaged or gone"):
        repaired(checkpoint)


@pytest.mark.parametrize("content", ["", "v1", DONE[:-1]])
def test_a_batch_whose_end_is_damaged_is_done_again(checkpoint, content):
    (checkpoint / "commits" / "0").write_text(content)
    assert repaired(checkpoint, may_plan_again=False) == (["commits/.0.crc", "commits/0"], 1)


@pytest.mark.parametrize("content", [None, "", '{"id":', "7"])
def test_the_id_of_a_query_is_replaced(checkpoint, content):
    metadata = checkpoint / "metadata"
    metadata.unlink() if content is None else metadata.write_text(content)
    assert repaired(checkpoint, may_plan_again=False) == ([".metadata.crc"], 1)
    assert json.loads(metadata.read_text())["id"]


def test_a_driver_that_died_before_its_first_plan_leaves_nothing(checkpoint):
    for folder in ("offsets", "commits"):
        for path in (checkpoint / folder).iterdir():
            path.unlink()
        for name in (".0.9a3f.tmp", "..0.9a3f.tmp.crc"):
            (checkpoint / folder / name).write_bytes(b"v1")
    (checkpoint / "metadata").write_text("")
    (checkpoint / "reached.json").write_text("{}")
    assert len(repaired(checkpoint)[0]) == 6
    assert files(checkpoint) == {"reached.json"}


def test_a_done_batch_whose_plan_is_gone_is_planned_again(checkpoint):
    for number in range(1, 3):
        write(checkpoint / "commits" / str(number), DONE)
    (checkpoint / "offsets" / "1").unlink()
    gone = [f"commits/{name}" for name in (".1.crc", ".2.crc", "1", "2")]
    assert repaired(checkpoint) == ([*gone, "offsets/.1.crc"], 2)


def test_done_batches_without_any_plan_are_told(checkpoint):
    for path in (checkpoint / "offsets").iterdir():
        path.unlink()
    with pytest.raises(BadStore, match="offsets/0 is damaged or gone"):
        repaired(checkpoint, may_plan_again=False)


def test_a_plan_is_on_the_disk_with_all_that_leads_to_it(checkpoint, monkeypatch):
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    sync_plan(checkpoint, 1)
    older = checkpoint / "offsets" / "0", checkpoint / "offsets" / ".0.crc"
    wanted = {path.stat().st_ino for path in (checkpoint.parent, checkpoint, *checkpoint.rglob("*"))}
    assert synced == wanted - {path.stat().st_ino for path in older}
