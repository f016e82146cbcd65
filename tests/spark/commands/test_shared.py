"""sparrowmq.spark.commands.shared: what commands of pipelines have in common."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from sparrowmq.errors import ConfigError
from sparrowmq.spark.commands import shared


@click.command()
@shared.servers()
@shared.source_options
@shared.prints_report
def said(name_server, options):
    if options.get("fail"):
        raise ConfigError("it is wrong")
    if options.get("open"):
        raise FileNotFoundError(2, "No such file or directory", options["open"])
    if options.get("spark"):
        pytest.importorskip("pyspark")
        from pyspark.errors import PySparkException

        raise PySparkException(options["spark"])
    click.echo(f"{name_server} {options}")
    return Done()


class Done:
    """A report."""

    stopped = False
    away = ()

    def line(self):
        return "{}"


def run(*args):
    return CliRunner().invoke(said, args, env={"NAMESRV_ADDR": "near:1"})


def test_name_servers_come_from_the_environment_too():
    assert run().stdout == "near:1 {}\n{}\n"
    assert run("-n", "far:1", "-o", "a=b=c").stdout == "far:1 {'a': 'b=c'}\n{}\n"


@click.command()
@shared.servers(required=False)
@click.option("--store")
@shared.source_options
@shared.target_options
@shared.prints_report
def given(**given):
    click.echo(f"{given['options']} {given['to_options']}")
    return Done()


@pytest.mark.parametrize(
    ("args", "options", "to_options"),
    [
        (["-n", "a:1"], {"accessKey": "me", "secretKey": "mine"}, {"accessKey": "me", "secretKey": "mine"}),
        (
            ["-n", "a:1", "-o", "ACCESSKEY=you", "--to-option", "rocketmq.client.secretKey=x"],
            {"secretKey": "mine", "ACCESSKEY": "you"},
            {"accessKey": "me", "rocketmq.client.secretKey": "x"},
        ),
        (["--store", "s", "-n", "a:1"], {}, {}),
        ([], {}, {}),
    ],
)
def test_the_account_comes_from_the_environment_unless_it_is_named_or_nobody_is_asked(args, options, to_options):
    account = {"ROCKETMQ_ACCESS_KEY": "me", "ROCKETMQ_SECRET_KEY": "mine", "NAMESRV_ADDR": ""}
    found = CliRunner().invoke(given, args, env=account)
    assert found.stdout.splitlines()[0] == f"{options} {to_options}"


@pytest.mark.parametrize(
    ("of_target", "to_options"),
    [
        ({"ACCESS_KEY": "you", "SECRET_KEY": "yours"}, {"accessKey": "you", "secretKey": "yours"}),
        ({"SECRET_KEY": "yours"}, {"secretKey": "yours"}),  # half of an account is refused, and not completed
        ({}, {"accessKey": "me", "secretKey": "mine"}),
    ],
)
def test_the_targets_account_comes_from_variables_of_its_own(of_target, to_options):
    account = {"ROCKETMQ_ACCESS_KEY": "me", "ROCKETMQ_SECRET_KEY": "mine", "NAMESRV_ADDR": ""}
    account |= {f"ROCKETMQ_TARGET_{name}": value for name, value in of_target.items()}
    found = CliRunner().invoke(given, ["-n", "a:1"], env=account)
    source = {"accessKey": "me", "secretKey": "mine"}
    assert found.stdout.splitlines()[0] == f"{source} {to_options}"


def test_a_file_that_cannot_be_opened_is_named_with_what_to_do():
    found = run("-o", "open=/absent/file")
    assert found.exit_code == 1
    assert "/absent/file cannot be used (No such file or directory); correct the path" in found.stderr


def test_options_of_a_file_go_behind_the_command_line_and_before_the_environment(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("# of the reader\naccessKey=him\nsecretKey = a=\\b\n\nTAGS=old\n")
    target.write_text("accessKey=her\nsecretKey=hers\n")
    args = ["-n", "a:1", "-o", "tags=paid", "--option-file", source, "--to-option-file", target]
    environment = {
        "ROCKETMQ_ACCESS_KEY": "me",
        "ROCKETMQ_SECRET_KEY": "mine",
        "ROCKETMQ_TARGET_SECRET_KEY": "x",
    }
    found = CliRunner().invoke(given, list(map(str, args)), env=environment)
    options = {"accessKey": "him", "secretKey": "a=\\b", "tags": "paid"}
    to_options = {"accessKey": "her", "secretKey": "hers"}
    assert found.stdout.splitlines()[0] == f"{options} {to_options}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"accessKey=x\n\nsecret", "line 3, is not an option with its value"),
        (b"=1", "line 1, is not an option with its value"),
        (b"\xff=1", "cannot be read"),
        (b"sendTimeoutMs=1", "says how messages are sent"),
    ],
)
def test_a_file_that_has_no_options_of_the_source_is_refused(tmp_path, text, why):
    file = tmp_path / "options"
    file.write_bytes(text)
    found = run("--option-file", str(file))
    assert found.exit_code == 2
    assert why in " ".join(found.output.split())
    assert "secret" not in found.output
    assert run("--option-file", str(tmp_path / "absent")).exit_code == 2


def test_every_command_that_asks_brokers_takes_its_secrets_from_a_file():
    pytest.importorskip("pyspark")
    from sparrowmq.spark.commands.pipeline_commands import pipeline

    options = {command.name: {option.name for option in command.params} for command in pipeline.commands.values()}
    assert all("option_file" in names for names in options.values() if "name_server" in names)
    assert all("to_option_file" in names for names in options.values() if "to_options" in names)


@pytest.mark.parametrize("text", ["a", "=b"])
def test_an_option_without_a_key_and_a_value_is_refused(text):
    found = run("-o", text)
    assert found.exit_code == 2
    assert "write KEY=VALUE" in found.output


def test_an_error_is_a_sentence(capsys):
    found = run("-o", "fail=yes")
    assert (found.exit_code, found.stderr) == (1, "sparrowmq pipeline: it is wrong\n")


def test_an_error_of_a_task_is_its_sentence_and_one_that_nobody_knows_is_told_whole():
    told = "[STREAM_FAILED] Query ended:\n  File x.py\nsparrowmq.errors.NoRoute: no route to T\n\n\tat org.apache"
    found = run("-o", f"spark={told}")
    assert (found.exit_code, found.stderr) == (
        1,
        "sparrowmq pipeline: no route to T; run it again to go on\n",
    )
    lost = run("-o", "spark=\nsparrowmq.spark.source.partition_ranges.RowsLost: 3 rows are gone")
    assert lost.stderr == "sparrowmq pipeline: 3 rows are gone\n"
    full = run(
        "-o",
        "spark=[STREAM_FAILED] it ended\nCaused by: java.io.IOException: No space left on device\n\tat java",
    )
    assert full.stderr.endswith("temporary files of Spark; free some; run it again to go on\n")
    wrong = run("-o", "spark=\nsparrowmq.errors.ConfigError: /backup has no log files")
    assert wrong.stderr == "sparrowmq pipeline: /backup has no log files\n"
    assert "out of memory" in str(run("-o", "spark=[JAVA] out of memory").exception)
