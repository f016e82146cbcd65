"""sparrowmq.spark.commands.lake_commands: what a user types, and a lake that is killed in the middle of its work."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from sparrowmq.spark.commands.lake_commands import lake
from sparrowmq.spark.lakehouse.lake_settings import (
    LakeSettings,
    SectionSettings,
    settings_in_files,
    settings_of,
)
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.lakehouse.lake_fire import LakeFire
from tests.spark.lakehouse.lakes import send

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "lake.md").read_text(encoding="utf-8")
FILE = """
name_server = "{namesrv}"
metrics = "127.0.0.1:{port}"
master = "local[2]"
every = "1s"
new_topics_every = "1s"
rows_per_round = 2000

[defaults]
to = "{folder}/{{topic}}"

[tables."k-.*"]
mode = "json"
"""


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


@pytest.fixture
def write(tmp_path, namesrv):
    def write(text=FILE, **given):
        path = tmp_path / "lake.toml"
        path.write_text(text.format(**{"namesrv": namesrv, "port": 0, "folder": tmp_path / "lake", **given}))
        return path

    return write


def run(*args):
    return CliRunner().invoke(lake, [str(each) for each in args])


def test_check_says_what_the_file_does_and_what_is_wrong(namesrv, write, tmp_path):
    send(namesrv, {"c-check": [b"{}"]})
    found = run("check", write(FILE.replace("k-.*", "c-.*")))
    assert found.exit_code == 0 and f"c-check: begins parquet at {tmp_path}/lake/c-check, mode json" in found.output
    found = run("check", write(FILE.replace("every =", "evry =", 1)))
    assert found.exit_code == 1 and "there is no setting evry; did you mean every" in found.output
    found = run("check", tmp_path / "absent.toml")
    assert found.exit_code == 1 and "cannot be read" in found.output


def test_the_file_of_the_page_is_right_and_the_page_names_each_setting(namesrv, tmp_path):
    send(namesrv, {"orders-page": [b"{}"], "tmp-page": [b"{}"]})
    block, *parts = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    for part in parts:
        given = {
            "defaults": {"to": "/lake/{topic}", "format": "delta"},
            "tables": {".*": {}},
            **tomllib.loads(part),
        }
        settings_of({"name_server": namesrv, **given}, "lake.md")
    path = tmp_path / "lake.toml"
    path.write_text(block.replace("127.0.0.1:9876", namesrv).replace("/lake/", f"{tmp_path}/lake/"))
    found = run("check", path)
    assert found.exit_code == 0, found.output
    assert f"orders-page: begins delta at {tmp_path}/lake/orders-page, mode json" in found.output
    assert "tmp-page:" not in found.output
    for kind in (LakeSettings, SectionSettings):
        for name in settings_in_files(kind):
            assert f"| `{name}` |" in PAGE, name


def test_status_without_a_lake_says_how_to_start_it(write):
    found = run("status", write(port=9))
    assert found.exit_code == 1 and "no lake answers at 127.0.0.1:9" in found.output
    assert "sparrowmq lake run" in found.output
    found = run("status", write(FILE.replace("metrics =", "master =").replace('master = "local[2]"', "", 1)))
    assert found.exit_code == 1 and "has no address to ask" in found.output


def test_a_wrong_file_ends_a_run_before_spark_starts(write):
    found = run("run", write(FILE.replace('mode = "json"', 'mode = "yaml"')), "--once")
    assert found.exit_code == 1 and "must be one of raw, json, schema" in found.output


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_lake_that_is_killed_in_the_middle_gives_each_message_one_row(tmp_path):
    fire = LakeFire(tmp_path, topics=6, rate=150, seed=7)
    fire.play(lives=1, life_s=6)
    assert list(fire.wrong()) == []
    assert fire.rows == fire.sent > 500
    assert [life["failures"] for life in fire.lives] == [0, 0]
    report = json.loads((tmp_path / "log-1").read_text().strip().splitlines()[-1])
    assert report["batches"] > 0 and "error" not in report
