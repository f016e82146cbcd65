"""That the compiled modules run, and that an edit makes all of them run from source."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from sparrowmq import compiled

ROOT = Path(__file__).parents[1]
HAS_PIP = any(Path(folder, "pip").is_dir() for folder in sys.path)
PROGRAM = """
import importlib
from sparrowmq import compiled
print(*sorted({importlib.import_module(name).__file__.rpartition(".")[2] for name in compiled.MODULES}))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package as it lies here, compiled modules and all."""
    if compiled.recorded() is None:
        pytest.skip("nothing is compiled here: it needs a C compiler and Python's headers")
    if compiled.recorded() != compiled.checksum():
        pytest.skip("the sources were edited; ./run compile compiles them again")
    shutil.copytree(ROOT / "sparrowmq", tmp_path / "sparrowmq", ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.glob(f"sparrowmq*{EXTENSION_SUFFIXES[0]}"):
        shutil.copy2(file, tmp_path)
    return tmp_path


def kinds(folder: Path, **variables: str) -> str:
    """The suffixes of the files that the listed modules come from."""
    environment = {key: value for key, value in os.environ.items() if key != "SPARROWMQ_SOURCE"}
    command = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_the_kernel_is_compiled_by_cython_alone():
    assert not [module for module in compiled.MODULES if module.startswith("sparrowmq.kernel")]


def test_each_module_of_the_list_has_a_source():
    assert all(os.path.isfile(compiled.source(module)) for module in compiled.MODULES)


@pytest.mark.parametrize("module", compiled.MODULES)
def test_no_module_of_the_list_has_a_coroutine_of_its_own(module: str):
    # `sparrowmq/loop/tasks.py` says why.
    tree = ast.parse(Path(compiled.source(module)).read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.Await)]


@pytest.mark.parametrize("module", compiled.MODULES)
def test_no_class_of_the_list_wants_weak_references(module: str):
    """Compiled classes have none, whatever they ask for."""
    source = Path(compiled.source(module)).read_text()
    assert "weakref_slot" not in source and "__weakref__" not in source


def test_what_was_compiled_runs(copy: Path):
    assert kinds(copy) == "so"


def test_after_an_edit_all_of_them_run_from_source(copy: Path):
    with (copy / "sparrowmq" / "loop" / "watermark.py").open("a") as file:
        file.write("# one line more\n")
    assert kinds(copy) == "py"


def test_the_environment_can_ask_for_the_sources(copy: Path):
    assert kinds(copy, SPARROWMQ_SOURCE="1") == "py"
    assert kinds(copy, SPARROWMQ_SOURCE="") == "so"


def test_what_was_compiled_in_part_does_not_run(copy: Path):
    (copy / "sparrowmq" / "compiled.sum").write_text("unfinished")
    assert kinds(copy) == "py"


def test_a_wheel_has_no_record_and_runs_what_it_holds(copy: Path):
    (copy / "sparrowmq" / "compiled.sum").unlink()
    assert kinds(copy) == "so"
    for file in copy.rglob(f"*{EXTENSION_SUFFIXES[0]}"):
        file.unlink()
    assert kinds(copy) == "py"


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PIP, reason="needs pip, which a .venv that uv made has not")
def test_a_compiled_wheel_holds_them(copy: Path, tmp_path: Path):
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheel = [*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", str(tmp_path / "wheel"), str(ROOT)]
    subprocess.run(wheel, check=True, env=os.environ | {"SPARROWMQ_COMPILE": "1"})
    [built] = (tmp_path / "wheel").iterdir()
    subprocess.run([*pip, "install", "--no-deps", "--target", str(tmp_path / "installed"), str(built)], check=True)
    assert kinds(tmp_path / "installed") == "so" and "none-any" not in built.name
