"""sparrowmq.spark.commands.shared: what commands of pipelines have in common."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from sparrowmq.errors import ConfigError
from sparrowmq.spark.commands import shared


@click.command()
@shared.servers()
@shared.of_source
@shared.ends_well
def said(name_server, options):
    if options.get("fail"):
        raise ConfigError("it is wrong")
    if options.get("spark"):
        pytest.importorskip("pyspark")
        from pyspark.errors import PySparkException

        raise PySparkException(options["spark"])
    click.echo(f"{name_server} {options}")
    return Done()


class Done:
    """A report."""

    stopped = False

    def line(self):
        return "{}"


def run(*args):
    return CliRunner().invoke(said, args, env={"NAMESRV_ADDR": "near:1"})


def test_name_servers_come_from_the_environment_too():
    assert run().stdout == "near:1 {}\n{}\n"
    assert run("-n", "far:1", "-o", "a=b=c").stdout == "far:1 {'a': 'b=c'}\n{}\n"


@pytest.mark.parametrize("text", ["a", "=b"])
def test_an_option_without_a_key_and_a_value_is_refused(text):
    found = run("-o", text)
    assert found.exit_code == 2
    assert "write KEY=VALUE" in found.output


def test_an_error_is_a_sentence(capsys):
    found = run("-o", "fail=yes")
    assert (found.exit_code, found.stderr) == (1, "sparrowmq pipeline: it is wrong\n")


def test_an_error_of_a_task_is_its_sentence_and_one_that_nobody_knows_is_told_whole():
    told = "[STREAM_FAILED] Query ended:\n  File x.py\nsparrowmq.errors.RowsLost: 3 rows are gone\n\n\tat org.apache"
    found = run("-o", f"spark={told}")
    assert (found.exit_code, found.stderr) == (
        1,
        "sparrowmq pipeline: 3 rows are gone; run it again to go on\n",
    )
    wrong = run("-o", "spark=\nsparrowmq.errors.ConfigError: /backup has no log files")
    assert wrong.stderr == "sparrowmq pipeline: /backup has no log files\n"
    assert "out of memory" in str(run("-o", "spark=[JAVA] out of memory").exception)
