"""The pure wheel, in an environment that has nothing but what it asks for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from sparrowmq.testing.background import BackgroundCluster
from tools import wheel

MOST_MB = 40
PROGRAM = """
import asyncio, sparrowmq

async def main():
    async with sparrowmq.connect({namesrv!r}) as mq:
        await mq.send("orders", b"hello", tag="paid", keys=["o-1"])
        async with mq.subscribe("orders", group="billing", start="earliest") as orders:
            async for order in orders:
                async with order.process():
                    print(order.text(), sparrowmq.__version__)
                break

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def pure(tmp_path_factory) -> Path:
    """The wheel as it is built here."""
    folder = tmp_path_factory.mktemp("dist")
    assert wheel.hatch(sys.executable, wheel.ROOT, "wheel", folder, {"SPARROWMQ_KERNEL": "plain"})
    built: Path = next(folder.glob("*.whl"))
    return built


@pytest.fixture(scope="module")
def site(pure, tmp_path_factory) -> Path:
    """The packages of an environment with the wheel and its requirements, copied from here: no network is needed."""
    home: Path = tmp_path_factory.mktemp("fresh")
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(pure) as archive:
        archive.extractall(packages)
    (wheels_own,) = packages.glob("sparrowmq-*.dist-info")
    for row in Distribution.at(wheels_own).requires or []:
        if "extra ==" not in row:
            install(re.split(r"[^\w.-]", row)[0], packages)
    return packages


def install(name: str, packages: Path) -> None:
    found = distribution(name)
    for file in found.files or []:
        if ".." not in file.parts:
            (packages / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(found.locate_file(file)), packages / file)


def python(site: Path, *args: str) -> subprocess.CompletedProcess[str]:
    interpreter = site.parents[2] / "bin" / "python"
    return subprocess.run([interpreter, "-I", *args], cwd=site, capture_output=True, text=True, timeout=60)


def test_the_pure_wheel_is_good_anywhere_and_holds_nothing_compiled(pure):
    assert pure.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(pure) as archive:
        names = archive.namelist()
    assert "sparrowmq/client/client.py" in names and "sparrowmq/py.typed" in names
    assert not [name for name in names if name.endswith((".so", ".sum", ".c"))]
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {
        "sparrowmq",
        "pyspark_rocketmq",
        "pytest_sparrowmq",
    }


def test_a_wheel_of_this_platform_has_the_compiled_kernel(tmp_path):
    assert wheel.hatch(sys.executable, wheel.ROOT, "wheel", tmp_path, {"SPARROWMQ_KERNEL": "compiled"})
    (built,) = tmp_path.glob("*.whl")
    assert f"-cp{sys.version_info.major}{sys.version_info.minor}-" in built.name
    assert wheel.try_wheel(sys.executable, built) == "compiled"


def test_wheel_that_does_not_work_is_found(pure, tmp_path):
    assert wheel.try_wheel(sys.executable, pure) == "plain"
    broken = tmp_path / pure.name
    with zipfile.ZipFile(pure) as archive, zipfile.ZipFile(broken, "w") as less:
        for name in archive.namelist():
            if name != "sparrowmq/kernel/records.py":
                less.writestr(name, archive.read(name))
    assert "ImportError" in wheel.try_wheel(sys.executable, broken)


def test_workflow_makes_wheels_of_every_python_that_run_wheel_makes():
    project = tomllib.loads((wheel.ROOT / "pyproject.toml").read_text())
    assert project["tool"]["cibuildwheel"]["build"] == [f"cp3{minor}-*" for minor in wheel.MINORS]


def test_the_base_install_sends_and_consumes(site, tmp_path):
    with BackgroundCluster(tmp_path) as cluster:
        done = python(site, "-c", PROGRAM.format(namesrv=cluster.namesrv))
    assert done.stdout.startswith("hello 0."), done.stderr


def test_the_base_install_is_small_and_of_three_packages(site):
    installed = {path.name.split("-")[0] for path in site.glob("*.dist-info")}
    assert installed == {"sparrowmq", "msgspec", "zlib_ng"}
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) <= MOST_MB << 20


def test_only_interpreters_that_start_are_found(monkeypatch, tmp_path):
    broken = tmp_path / "bin" / "python3.12"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent), prepend=":")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert wheel.find(12) is None
    good = tmp_path / "pyenv" / "versions" / f"3.{sys.version_info.minor}.0" / "bin"
    good.mkdir(parents=True)
    (good / f"python3.{sys.version_info.minor}").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    found = wheel.find(sys.version_info.minor)
    assert found is not None and wheel.version_of(found) == sys.version_info[:2]
