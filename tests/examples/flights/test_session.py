"""Each test has a process of its own: pyspark allows one session in each."""

import subprocess
import sys

import pytest

START = """
import pathlib, sys, threading
from examples.flights.session import SparkProcess
from sparrowmq.errors import SparrowError
folder = pathlib.Path(sys.argv[1])
"""
TWICE_AND_KILLED = """
from py4j.protocol import Py4JError
for number in range(2):
    (folder / str(number)).mkdir()
    spark = SparkProcess(folder / str(number))
    session = spark.start()
    print(session.range(5).count(), session.conf.get("spark.sql.session.timeZone"), spark.log.stat().st_size > 0)
    if number == 0:
        spark.stop(session)
sleep = session._jvm.java.lang.Thread.sleep  # each dot asks Java
threading.Timer(1, spark.kill).start()
try:
    sleep(60_000)
except (Py4JError, ConnectionError):
    print("told")
spark.kill()
"""
TOO_LATE = """
spark = SparkProcess(folder)
spark.kill()
try:
    spark.start()
except SparrowError as error:
    print(error)
"""

pytestmark = pytest.mark.timeout(300)


def run(program: str, folder) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", START + program, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=True)


@pytest.mark.slow
def test_a_session_is_quiet_the_next_has_a_java_of_its_own_and_a_killed_one_ends_whoever_waits(tmp_path):
    ran = run(TWICE_AND_KILLED, tmp_path)
    assert ran.stdout == "5 UTC True\n5 UTC True\ntold\n"
    assert ran.stderr == ""


@pytest.mark.slow
def test_a_session_that_was_killed_before_it_came_up_does_not_come_up(tmp_path):
    assert run(TOO_LATE, tmp_path).stdout == "Spark was stopped while it started\n"
