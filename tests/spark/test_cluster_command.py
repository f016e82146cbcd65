"""sparrowmq.spark.commands.spark_commands: `sparrowmq spark`."""

import zipfile

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from sparrowmq.cli.main import main
from sparrowmq.spark.commands import spark_commands
from sparrowmq.spark.commands.spark_commands import Submission


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """Nothing of pyarrow and numpy, which take seconds."""
    monkeypatch.setattr(spark_commands, "TASK_PACKAGES", ("lark",))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(*arguments):
    return CliRunner().invoke(main, ["spark", *map(str, arguments)])


def test_a_dry_run_shows_the_command_and_packs_nothing(tmp_path):
    said = run("submit", "--dry-run", "--master", "spark://h:7077", "pipeline", "lag", "g", "-n", "h:9876")
    assert said.exit_code == 0
    assert "bin/spark-submit --archives " in said.output and "--master spark://h:7077" in said.output
    assert said.stdout.endswith("commands/pipeline_commands.py lag g -n h:9876\n")
    assert "is not there yet; a run packs it" in said.stderr
    assert not (tmp_path / "cache").exists()


def test_a_dry_run_names_the_archive_that_a_run_sends(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(Submission, "start", lambda self: started.append(self))
    assert run("submit", "count.py").exit_code == 0
    said = run("submit", "--dry-run", "count.py")
    assert said.stdout == f"{started[0].display()}\n"
    assert said.stderr == ""


def test_a_dry_run_shows_no_secrets():
    pipeline = ["pipeline", "lag", "g", "-n", "h:9876", "-o", "accessKey=me", "-o", "secretKey=s3cret"]
    pipeline += ["-osecurityToken=s3cret", "--option=tls.client.keyPassword=s3cret"]
    said = run("submit", "--dry-run", "--conf", "spark.authenticate.secret=s3cret", *pipeline)
    assert said.exit_code == 0
    assert "s3cret" not in said.output
    assert "accessKey=me" in said.output and "secretKey=***" in said.output


def test_a_program_is_started_with_an_archive_of_what_is_here(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(Submission, "start", lambda self: started.append(self))
    assert run("submit", "--with", "h11", "--python", "/opt/python3.11", "count.py").exit_code == 0
    (archive,) = (tmp_path / "cache" / "sparrowmq" / "spark").iterdir()
    assert f"{archive}#environment" in started[0].command
    assert started[0].environment["PYSPARK_PYTHON"] == "/opt/python3.11"
    with zipfile.ZipFile(archive) as content:
        assert "h11/__init__.py" in content.namelist()


def test_an_archive_that_was_packed_before_is_sent(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(Submission, "start", lambda self: started.append(self))
    assert "MiB; --archives" in run("pack", tmp_path / "e.zip").output
    assert run("submit", "--environment", tmp_path / "e.zip", "count.py").exit_code == 0
    assert f"{tmp_path / 'e.zip'}#environment" in started[0].command
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["submit"], "name a program"),
        (["submit", "--with", "no-such-thing", "a.py"], "no-such-thing cannot be packed"),
        (["pack", "--with", "no-such-thing", "e.zip"], "no-such-thing cannot be packed"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(given, complaint):
    said = run(*given)
    assert said.exit_code == 2
    assert said.output.startswith(f"main spark {given[0]}: {complaint}")
