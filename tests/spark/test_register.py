"""sparrowmq.spark.register: a session that knows the source."""

import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import sparrowmq.spark.worker_daemon
from sparrowmq.errors import ConfigError
from sparrowmq.spark.register import cores_variable, python_path, register, session, unix_sockets


def test_a_session_has_the_settings_it_was_given(spark):
    assert session(settings={"spark.sql.adaptive.enabled": "false"}).conf.get("spark.sql.adaptive.enabled") == "false"
    assert spark.range(3).count() == 3


def test_java_and_the_workers_talk_by_unix_sockets(spark):
    assert session().sparkContext is spark.sparkContext
    found = spark.sparkContext.parallelize([0], 1).map(
        lambda _: (os.environ["PYTHON_UNIX_DOMAIN_ENABLED"], sys.modules["__main__"].__file__)
    )
    assert found.collect() == [("True", sparrowmq.spark.worker_daemon.__file__)]


def test_a_folder_whose_path_is_too_long_for_sockets_is_not_taken(tmp_path):
    far = tmp_path / ("x" * 60)
    far.mkdir()
    assert unix_sockets(str(far))["spark.python.unix.domain.socket.dir"] == "/tmp"
    assert unix_sockets("/var/tmp")["spark.python.unix.domain.socket.dir"] == "/var/tmp"


@pytest.mark.slow
def test_a_program_that_does_not_stop_its_session_leaves_no_socket():
    context = "sparrowmq.spark.session('local[1]').sparkContext"
    program = f"import sparrowmq.spark; print({context}._accumulatorServer.server_address)"
    found = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert found.stdout.startswith("/") and not Path(found.stdout.strip()).exists()


def test_the_package_has_the_session_and_nothing_else():
    assert sparrowmq.spark.session is session
    with pytest.raises(AttributeError, match=r"module 'sparrowmq\.spark' has no attribute 'sessions'"):
        sparrowmq.spark.sessions  # noqa: B018


def test_a_program_that_spark_submit_started_gets_the_session_that_was_asked_for(spark, monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert session().sparkContext.master == spark.sparkContext.master
    assert "PYSPARK_PYTHON" not in os.environ  # what spark-submit has said is left alone


def test_a_remote_is_no_master():
    with pytest.raises(ConfigError, match="give a master or a remote, not both"):
        session("local", remote="sc://h:1")


def test_packages_of_spark_connect_that_are_missing_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.session", None)
    with pytest.raises(ConfigError, match=r"pip install 'sparrowmq\[connect\]'"):
        session(remote="sc://127.0.0.1:1")


@pytest.mark.slow
def test_a_registered_source_is_found(spark, peer):
    register(spark)
    peer.store("T", 0, [b"x"] * 3)
    options = {"nameServer": peer.address, "topic": "T", "columns": "body"}
    assert spark.read.format("rocketmq").options(**options).load().count() == 3


def test_every_session_finds_it_in_every_thread(spark, peer):
    peer.store("T", 0, [b"x"] * 3)

    def count(session):
        options = {"nameServer": peer.address, "topic": "T", "columns": "body"}
        return session.read.format("rocketmq").options(**options).load().count()

    with ThreadPoolExecutor(1) as other:
        assert other.submit(count, spark).result() == other.submit(count, spark.newSession()).result() == 3


def test_workers_find_a_package_that_is_not_installed(monkeypatch):
    folder = str(Path(sparrowmq.__file__).parents[1])
    assert python_path({}) == {"PYTHONPATH": folder}
    assert python_path({"PYTHONPATH": "/other"}) == {"PYTHONPATH": os.pathsep.join([folder, "/other"])}
    assert python_path({"PYTHONPATH": folder}) == {}
    monkeypatch.setattr(sysconfig, "get_path", lambda _: folder)
    assert python_path({}) == {}


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", "1"),
        ("local[3]", "3"),
        ("local[2,4]", "2"),
        ("local[*]", str(os.cpu_count())),
        ("spark://a:7077", None),
        ("local-cluster[2,1,1024]", None),
    ],
)
def test_the_cores_of_a_session_on_this_machine_are_known(master, cores):
    assert cores_variable(master).get("SPARROWMQ_SPARK_CORES") == cores


@pytest.mark.slow
def test_a_java_that_ends_at_its_start_for_want_of_descriptors_is_a_sentence():
    command = 'ulimit -n 256; exec "$0" -m sparrowmq pipeline sql "select 1" -n 127.0.0.1:1'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True, timeout=200)
    assert done.returncode == 1
    assert "sparrowmq pipeline: the Java process of Spark ended at its start" in done.stderr
    assert "ulimit -n" in done.stderr and "Traceback" not in done.stderr
