"""sparrowmq.spark.commands.spark_commands: what spark-submit is told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.spark.commands import spark_commands as submissions
from sparrowmq.spark.commands.spark_commands import Submission, build_submission, split_arguments

ARCHIVE = Path("/cache/environment.zip")
FAR = "spark://10.0.0.5:7077"


@pytest.fixture
def told(monkeypatch):
    """Says how something would be started, with these variables."""
    monkeypatch.setattr(
        submissions,
        "spark_environment",
        lambda environ: {"JAVA_HOME": "/java", "SPARK_LOCAL_IP": environ.get("SPARK_LOCAL_IP", "127.0.0.1")},
    )

    def told(*given, **environ):
        return build_submission(given, ARCHIVE, "python3.11", {"SPARK_HOME": "/spark", **environ})

    return told


def after(command, option):
    return command[command.index(option) + 1]


@pytest.mark.parametrize(
    ("given", "options", "program"),
    [
        (["count.py", "-v"], [], "count.py"),
        (
            ["--master", FAR, "-v", "--conf=a=b", "count.py"],
            ["--master", FAR, "-v", "--conf=a=b"],
            "count.py",
        ),
        (["--conf", "pipeline", "pipeline", "lag"], ["--conf", "pipeline"], "pipeline"),
    ],
)
def test_the_program_is_what_follows_the_options_of_spark_submit(given, options, program):
    assert split_arguments(given) == (options, program, given[len(options) + 1 :])


@pytest.mark.parametrize("given", [[], ["-v"], ["--master"], ["--master", FAR]])
def test_no_program_is_an_error_that_says_what_one_is(given):
    with pytest.raises(ConfigError, match=r"name a program: a \.py file, or `pipeline NAME`"):
        split_arguments(given)


def test_executors_get_the_archive_and_find_it(told):
    command = told("--master", FAR, "count.py", "orders").command
    assert command[0] == "/spark/bin/spark-submit"
    assert after(command, "--archives") == f"{ARCHIVE}#environment"
    assert "spark.executorEnv.PYTHONPATH=./environment" in command
    assert command[-4:] == ("--master", FAR, "count.py", "orders")


def test_archives_of_the_user_are_sent_too(told):
    command = told("--archives", "a.zip#a", "--archives=b.zip", "count.py").command
    assert after(command, "--archives") == f"{ARCHIVE}#environment,a.zip#a,b.zip"
    assert command.count("--archives") == 1


def test_a_pipeline_is_a_program_of_ours(told):
    command = told("--master", FAR, "pipeline", "table", "orders", "--once").command
    assert Path(command[-4]).name == "pipeline_commands.py"
    assert command[-3:] == ("table", "orders", "--once")


def test_the_program_of_pipelines_is_their_command():
    done = subprocess.run(
        [sys.executable, str(submissions._PROGRAM), "table", "--help"], capture_output=True, text=True
    )
    assert "Keep TOPIC as a Parquet, Delta or Iceberg table." in done.stdout, done.stderr


def test_drivers_are_reachable_from_other_machines_and_not_where_there_are_none(told):
    assert "SPARK_LOCAL_IP" not in told("--master", FAR, "a.py").environment
    assert told("--master", FAR, "a.py", SPARK_LOCAL_IP="10.0.0.1").environment["SPARK_LOCAL_IP"] == "10.0.0.1"
    for near in (["--master=spark://127.0.0.1:7077"], ["--master", "local[2]"], []):
        assert told(*near, "a.py").environment["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_the_drivers_python_is_this_one_and_the_executors_theirs(told):
    environment = told("a.py", PYTHONPATH="/mine").environment
    assert environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert environment["PYSPARK_PYTHON"] == "python3.11"
    assert environment["PYTHONPATH"].endswith(f"{os.pathsep}/mine")


def test_spark_is_that_of_the_package_unless_spark_home_names_one():
    pytest.importorskip("pyspark")
    assert (submissions.spark_home({}) / "bin" / "spark-submit").exists()
    assert submissions.spark_home({"SPARK_HOME": "/opt/spark"}) == Path("/opt/spark")


def test_starting_is_becoming_the_command(tmp_path):
    script = tmp_path / "start.py"
    script.write_text(
        "import sys; from sparrowmq.spark.commands.spark_commands import Submission\n"
        "Submission(('/bin/sh', '-c', 'echo $WORD; exit 3'), {'WORD': 'said'}).start()\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "said\n")
    assert Submission(("/bin/true",), {}).command == ("/bin/true",)
