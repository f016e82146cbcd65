"""sparrowmq.spark.command: what a user types, and what comes back."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from sparrowmq.spark.command import pipeline


def run(*args):
    return CliRunner().invoke(pipeline, ["table", "orders", *args], env={"NAMESRV_ADDR": ""})


def test_help_names_every_option():
    told = run("--help").output
    for option in (
        "--namesrv",
        "--to",
        "--format",
        "--mode",
        "--schema",
        "--once",
        "--every",
        "--option",
        "--dry-run",
    ):
        assert option in told


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ((), "Missing option"),
        (("-n", "a:1"), "Missing option '--to'"),
        (("-n", "a:1", "--to", "t", "--format", "orc"), "'orc' is not one of 'parquet', 'delta', 'iceberg'"),
        (("-n", "a:1", "--to", "t", "-o", "tags"), "'tags' is no option of the source; write KEY=VALUE"),
    ],
)
def test_a_wrong_command_line_is_told(args, complaint):
    found = run(*args)
    assert found.exit_code == 2
    assert complaint in found.output


def test_without_spark_it_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from sparrowmq.spark.command import pipeline\n"
        "pipeline(['table', 'orders', '-n', 'a:1', '--to', 't'])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert found.returncode == 1
    assert "pip install 'sparrowmq[server,lake]'" in found.stderr
