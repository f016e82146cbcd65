"""The compiled kernel under AddressSanitizer and UBSan: no bytes lead it out of its memory."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq import kernel
from tests.kernel import fuzzing, targets
from tools import kernel as building

ROOT = Path(__file__).parents[2]
CASES = 1_000
SEED = 71
SECONDS = 4.0  # of each target
# Those that give the kernel damaged bytes; the others here compare its forms.
HOSTILE = [
    *(f"tests/kernel/test_{name}.py" for name in ("columns", "cursor", "hpack", "http2", "soundness")),
    "tests/spark/columns/test_records.py",
]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # of which compiling takes most


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The kernel with both sanitizers, which also counts the edges that it takes."""
    if building.what_is_missing() or sys.platform != "linux" or fuzzing.runtime() is None:
        pytest.skip("gcc and its AddressSanitizer are not here")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # of all workers, as a build takes long
    built = shared / "sanitized"
    with (shared / "sanitized.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (built / "coverage.so").exists():
            fuzzing.build(built)
    return built


def run(folder: Path, program: str, tree: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a program whose kernel is that of the folder."""
    first = f"from sparrowmq import kernel; kernel.__path__.insert(0, {str(folder)!r}); "
    environment = fuzzing.environment(folder) | {"PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", first + program]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=300)


def test_no_case_leads_the_kernel_out_of_its_bytes(folder):
    program = f"from tests.kernel import cases; from sparrowmq.kernel import records; cases.main(7, {CASES}); "
    done = run(folder, program + "print(records.__file__)")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].startswith(str(folder))


def test_hostile_tests_pass_under_the_sanitizers(folder):
    # Where nothing has imported Spark's packages yet, Python compiles them: under the sanitizers that takes minutes.
    collect = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *HOSTILE]
    subprocess.run(collect, cwd=ROOT, check=True, capture_output=True, timeout=200)
    program = f"import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *{HOSTILE!r}]))"
    done = run(folder, program)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def test_decoders_return_or_refuse_in_words_under_the_sanitizers(folder):
    program = f"from tests.fuzz.decoders import try_all; print(*try_all({SEED}, 10_000).violations, sep='\\n')"
    done = run(folder, program)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stdout.split("\n") if line and " took " not in line] == []  # they are slow here


def test_search_knows_all_targets():
    assert tuple(targets.TARGETS) == fuzzing.TARGETS


@pytest.mark.parametrize("name", fuzzing.TARGETS)
def test_search_finds_no_input_that_leads_out_of_memory(folder, name):
    assert fuzzing.search(folder, name, SECONDS, SEED) is None


def test_search_finds_an_access_out_of_the_bytes(folder, tmp_path):
    """Without this, a sanitizer that does not work here would pass for a kernel without faults."""
    tree = tmp_path / "tree"
    for part in ("sparrowmq", "tools"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__", "compiled"))
    cursor = tree / "sparrowmq" / "kernel" / "cursor.pyx"
    cursor.write_text(cursor.read_text().replace("size > end - at", "size > end - at + 64"))
    command = [sys.executable, "-m", "tools.kernel", "--sanitize", str(tmp_path / "kernel"), "--cover"]
    subprocess.run(command, cwd=tree, check=True)
    shutil.copy(folder / "coverage.so", tmp_path / "kernel")
    assert kernel.VARIABLE not in fuzzing.environment(folder)
    found = fuzzing.search(tmp_path / "kernel", "batches", 20 * SECONDS, SEED)
    assert found is not None and "AddressSanitizer" in found
