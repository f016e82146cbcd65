import json

import pytest
from click.testing import CliRunner

from sparrowmq import __version__
from sparrowmq.cli.version import version


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    monkeypatch.delenv("RMQ_BROKER_flushDiskType", raising=False)


def test_it_tells_what_runs_and_what_a_broker_does_with_messages(tmp_path):
    told = CliRunner().invoke(version, ["--set", f"storePathRootDir={tmp_path}"])
    assert told.exit_code == 0
    first, second = told.output.splitlines()
    assert first.startswith(f"sparrowmq {__version__}, ")
    assert second == f"store {tmp_path}, SYNC_FLUSH"


def test_settings_are_taken_from_where_a_broker_takes_them(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("storePathRootDir=/data/mq\n")
    told = CliRunner().invoke(version, ["-c", str(file)], env={"RMQ_BROKER_flushDiskType": "ASYNC_FLUSH"})
    assert told.output.splitlines()[1] == "store /data/mq, ASYNC_FLUSH"


def test_a_program_gets_the_same_as_an_object(tmp_path):
    told = CliRunner().invoke(version, ["--set", f"storePathRootDir={tmp_path}", "-o", "json"])
    (said,) = json.loads(told.output)
    assert said["version"] == __version__ and isinstance(said["compiled"], bool)
    assert (said["store"], said["flush"]) == (str(tmp_path), "SYNC_FLUSH")


def test_wrong_settings_are_told():
    told = CliRunner().invoke(version, ["--set", "flushDiskType=NEVER"])
    assert told.exit_code == 2 and "flushDiskType" in told.stderr and not told.stdout
