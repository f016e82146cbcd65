"""The two forms of the kernel: which one runs, that both do the same, and that the compiled one stays in its bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparrowmq import kernel
from tools import kernel as building

ROOT = Path(__file__).parents[2]
CASES = 3_000
FORM = "from sparrowmq import kernel; from sparrowmq.kernel import records; print(kernel.is_compiled())"


def python(*arguments: str, tree: Path = ROOT, **environment: Any) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in (kernel.VARIABLE, "PYTHONPATH")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=tree, env=clean | environment, capture_output=True, text=True, timeout=300)


def is_compiled_in(tree: Path, form: str = "") -> str:
    done = python("-c", FORM, tree=tree, SPARROWMQ_KERNEL=form, PYTHONPATH=str(tree))
    return done.stdout.split()[0] if done.returncode == 0 else done.stderr.splitlines()[-1]


@pytest.fixture
def tree(tmp_path):
    """A copy of the package, with what was compiled here."""
    shutil.copytree(ROOT / "sparrowmq", tmp_path / "sparrowmq", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.fixture
def built():
    if not kernel.is_built():
        pytest.skip(f"the kernel is not built: {building.what_is_missing() or 'run ./run setup'}")


@pytest.mark.usefixtures("built")
def test_the_compiled_form_runs_by_default_and_the_other_one_if_it_is_asked_for(tree):
    assert [is_compiled_in(tree, form) for form in ("", "compiled", "plain")] == ["True", "True", "False"]


@pytest.mark.usefixtures("built")
def test_an_edited_source_runs_plain_until_it_is_built_again(tree):
    with (tree / "sparrowmq" / "kernel" / "records.py").open("a") as source:
        source.write("# edited\n")
    assert is_compiled_in(tree) == "False"
    assert "was not built from these sources: `./run setup` does it" in is_compiled_in(tree, "compiled")


def test_another_form_is_refused(tree):
    assert is_compiled_in(tree, "fast") == "ImportError: SPARROWMQ_KERNEL=fast: give plain or compiled, or leave it out"


def test_without_a_compiler_it_says_what_to_install(tree):
    shutil.rmtree(tree / "sparrowmq" / "kernel" / "compiled", ignore_errors=True)
    shutil.copytree(ROOT / "tools", tree / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    done = python("-m", "tools.kernel", tree=tree, CC="no-such-compiler")
    assert done.returncode == 0
    assert "plain Python, a tenth as fast: there is no C compiler no-such-compiler" in done.stderr
    assert is_compiled_in(tree) == "False"


def test_without_a_compiler_the_package_that_is_one_is_asked_for(tree, tmp_path):
    shutil.copytree(ROOT / "tools", tree / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    ask = ("-m", "tools.kernel", "--packages")
    assert python(*ask, tree=tree, PATH=str(tmp_path)).stdout.split() == (
        [building.ZIG] if building.has_headers() else []
    )
    assert python(*ask, tree=tree, PATH=str(tmp_path), CC="mine").stdout.split() == []
    if building.what_is_missing() is None:
        assert python(*ask, tree=tree).stdout.split() == []


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("seed", range(3))
def test_both_forms_say_the_same_of_records_sound_and_damaged(seed):
    plain, compiled = (
        python("-m", "tests.kernel.cases", str(seed), str(CASES), SPARROWMQ_KERNEL=form)
        for form in ("plain", "compiled")
    )
    assert (plain.stderr, compiled.stderr) == ("plain\n", "compiled\n")
    assert len(plain.stdout.splitlines()) == 9 * CASES
    assert plain.stdout == compiled.stdout
