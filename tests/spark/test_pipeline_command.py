"""sparrowmq.spark.commands.pipeline_commands: what a user types, and what comes back."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sparrowmq.spark.commands.pipeline_commands import pipeline


def run(*args):
    return CliRunner().invoke(pipeline, ["table", "orders", *args], env={"NAMESRV_ADDR": ""})


PAGE = (Path(__file__).parents[2] / "docs" / "use" / "pipelines.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", pipeline.commands.values(), ids=lambda command: command.name)
def test_every_pipeline_has_its_page_a_dry_run_and_options_that_say_what_they_are(command):
    assert f"`{command.name}`" in PAGE
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert "dry_run" in {each.name for each in options}
    assert [each.name for each in options if each.help is None and each.name not in ("format",)] == []


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
        (("-n", "a:1", "--to", "t", "-o", "onError=skip"), "option onError says how messages are sent"),
        (("-n", "a:1", "--to", "t", "-o", "tags"), "'tags' is not an option with its value; write KEY=VALUE"),
    ],
)
def test_a_wrong_command_line_is_told(args, complaint):
    found = run(*args)
    assert found.exit_code == 2
    assert complaint in found.output


def test_options_of_publish_are_the_sinks():
    assert "An option of the sink" in CliRunner().invoke(pipeline, ["publish", "--help"]).stdout


def test_without_spark_it_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from sparrowmq.spark.commands.pipeline_commands import pipeline\n"
        "pipeline(['table', 'orders', '-n', 'a:1', '--to', 't'])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert found.returncode == 1
    assert "pip install 'sparrowmq[server,lake]'" in found.stderr
