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
    assert len(plain.stdout.splitlines()) == 8 * CASES
    assert plain.stdout == compiled.stdout


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """The kernel with AddressSanitizer and UBSan, and what a Python needs to load it."""
    if building.what_is_missing() or sys.platform != "linux":
        pytest.skip("a sanitizer needs a C compiler, on Linux")
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(found):
        pytest.skip("gcc has no AddressSanitizer here")
    folder = tmp_path_factory.mktemp("sanitized")
    done = python("-m", "tools.kernel", "--sanitize", str(folder))
    assert done.returncode == 0, done.stderr
    return folder, {"LD_PRELOAD": found, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}


@pytest.mark.slow
def test_no_record_leads_the_compiled_form_out_of_its_bytes(sanitized):
    folder, environment = sanitized
    program = (
        f"from sparrowmq import kernel; kernel.__path__.insert(0, {str(folder)!r}); "
        "from tests.kernel import cases; from sparrowmq.kernel import records; "
        f"cases.main(7, {CASES}); print(records.__file__)"
    )
    done = python("-c", program, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].startswith(str(folder))


@pytest.mark.slow
def test_the_sanitizer_would_find_an_access_out_of_the_bytes(sanitized):
    """Without this, a sanitizer that does not work here would pass for a kernel without faults."""
    folder, environment = sanitized
    broken = folder.parent / "broken"
    tree = broken / "tree"
    for part in ("sparrowmq", "tools"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__", "compiled"))
    cursor = tree / "sparrowmq" / "kernel" / "cursor.pyx"
    cursor.write_text(cursor.read_text().replace("size > self.size - at", "size > self.size - at + 64"))
    built = python("-m", "tools.kernel", "--sanitize", str(broken / "kernel"), tree=tree)
    assert built.returncode == 0, built.stderr
    program = (
        f"from sparrowmq import kernel; kernel.__path__.insert(0, {str(broken / 'kernel')!r}); "
        "from sparrowmq.kernel import cursor; data = memoryview(bytearray(1 << 20)); cursor.In(data).i64((1 << 20) - 4)"
    )
    done = python("-c", program, tree=tree, **environment)
    assert done.returncode != 0 and "AddressSanitizer" in done.stderr
