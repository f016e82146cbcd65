"""What lies at offsets of another broker's log; and a store that is mended by that."""

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparrowmq.cli.store import LogCopy, store
from sparrowmq.errors import BrokerUnreachable
from sparrowmq.protocol.messages import record as records
from tests.cli.servers.test_serve import PULL_FIELDS, SEND_FIELDS
from tests.interop.apache import free_ports
from tests.interop.wire import PULL, SEND, Wire

COUNT = 30
SIZES = ["mappedFileSizeCommitLog=1m", "maxHashSlotNum=1000", "maxIndexNum=4000"]


@pytest.fixture
def filled(start, broker_args, tmp_path):
    """The folder of a store with messages in one queue, whose broker was stopped, and where each record lies."""
    broker = start(*broker_args).ready()
    with Wire(broker.port) as wire:
        for number in range(COUNT):
            assert wire.ask(SEND, SEND_FIELDS, b"%d" % number).code == 0
        body = wire.ask(PULL, PULL_FIELDS).body
    broker.stop()
    return tmp_path / "store", [records.physical_offset(each) for each in records.walk(body)]


def damage(folder: Path, offset: int) -> None:
    path = folder / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(offset + 60)
        byte = file.read(1)
        file.seek(offset + 60)
        file.write(bytes([byte[0] ^ 1]))


def repair(folder, *args):
    changes = [word for size in SIZES for word in ("--set", size)]
    return CliRunner().invoke(store, ["repair", str(folder), *changes, *args])


@pytest.mark.slow
def test_a_damaged_store_is_repaired_from_a_broker_that_has_the_same_log(start, broker_args, filled, tmp_path):
    folder, offsets = filled
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    for number in (3, 4, COUNT - 1):
        damage(folder, offsets[number])
    slave = start(*broker_args, "--set", f"storePathRootDir={other}").ready()
    result = repair(folder, "--from", slave.address)
    assert result.exit_code == 0, result.output
    assert f"3 records are as {slave.address} has them\n{folder} is sound; set-aside holds 2 pieces" in result.output
    slave.stop()
    names = "commitlog/" + f"{0:020d}"
    assert (folder / names).read_bytes() == (other / names).read_bytes()
    with Wire(start(*broker_args).ready().port) as wire:
        body = wire.ask(PULL, PULL_FIELDS).body
        assert [bytes(records.decode(each).body) for each in records.walk(body)] == [
            b"%d" % number for number in range(COUNT)
        ]


@pytest.mark.slow
def test_a_broker_with_another_log_is_none_to_repair_from(start, broker_args, filled, tmp_path):
    folder, offsets = filled
    damage(folder, offsets[3])
    stranger = start(*broker_args, "--set", f"storePathRootDir={tmp_path / 'other'}").ready()
    result = repair(folder, "--from", stranger.address)
    assert result.exit_code == 1 and "it is no slave or master of this one" in result.output
    assert not os.path.exists(folder / "set-aside")


@pytest.mark.slow
def test_records_are_asked_by_their_offsets(start, broker_args, filled):
    _, offsets = filled
    broker = start(*broker_args).ready()
    with LogCopy(broker.address) as copy:
        found = copy.record_at(offsets[1])
        assert found is not None and records.check(found, offsets[1]) is None
        assert copy.record_at(offsets[1] + 1) is None and copy.record_at(1 << 40) is None


def test_a_broker_that_is_not_there_is_asked_for_some_seconds():
    pauses: list[float] = []
    with (
        pytest.raises(BrokerUnreachable),
        LogCopy(f"127.0.0.1:{free_ports(1)[0]}", sleep=pauses.append) as copy,
    ):
        copy.record_at(0)
    assert pauses == [1.0] * 4
