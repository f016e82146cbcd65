import re
from pathlib import Path

import pytest

from tests.conftest import APART, LONGEST_FIRST, TOGETHER, WAITING, group_of, rank

pytestmark = pytest.mark.slow  # each runs pytest in a process of its own

SKIPPING = """
import pytest

@pytest.mark.skip(reason="no Java on this machine")
def test_java(): ...

@pytest.mark.skip(reason="needs Python 3.13")
def test_new_syntax(): ...

def test_plain(): ...
"""


@pytest.fixture(params=["in one process", pytest.param("in two workers", marks=pytest.mark.slow)])
def run(request, pytester: pytest.Pytester, monkeypatch):
    """Runs pytest in a folder of its own that has our conftest.py and the test above."""
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makepyfile(SKIPPING)
    workers = ["-n", "2"] if request.param == "in two workers" else []

    def run(*arguments: str, **environment: str) -> pytest.RunResult:
        for name in ("CI", "FAILED_CHECKS"):
            monkeypatch.setenv(name, environment.get(name, ""))
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *workers, *arguments)

    return run


def test_a_skip_passes_on_a_developers_machine(run):
    result = run()
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=2)


def test_a_skip_that_hides_something_fails_on_ci_and_is_named(run):
    result = run(CI="true")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*no Java on this machine", "*CI has what this test needs*"])
    result.stdout.fnmatch_lines(["*= 1 passed, 2 skipped, 1 error in *"])


def test_a_check_that_failed_before_the_tests_fails_the_run(run):
    result = run(CI="true", FAILED_CHECKS="lint docs")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*`./run lint` failed*", "*`./run docs` failed*", "*= 1 passed, 2 skipped, 3 errors in *"]
    )


def test_a_run_that_takes_too_long_fails_and_still_ends_with_its_summary(run, pytester):
    long = "".join(f"def test_{i}(): time.sleep(0.1)\n" for i in range(50))
    pytester.makepyfile(test_long=f"import time\n{long}")
    result = run("--session-timeout=1")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*session-timeout: 1.0 sec exceeded*", "*= * passed, * skipped in *"])


SHAPING = """
import logging

class Shaping(logging.Logger):
    def addHandler(self, handler):
        handler.setFormatter(logging.Formatter("%(name)s"))
        super().addHandler(handler)

logging.setLoggerClass(Shaping)
logging.getLogger("shaping").propagate = False
logging.setLoggerClass(logging.Logger)

def test_log(caplog):
    logging.getLogger("other").error("as it is")
    assert "as it is" in caplog.text
"""


def test_a_logger_that_shapes_what_listens_to_it_leaves_the_log_as_it_is(run, pytester):
    pytester.makepyfile(test_shaping=SHAPING)
    run("test_shaping.py").assert_outcomes(passed=1)


def test_a_files_tests_stay_together_and_the_longest_begin_first():
    groups = [group_of(f"{file}::test_x[1::2]") for file in ("tests/a/test_b.py", *APART, *TOGETHER)]
    assert groups[0] == "tests/a/test_b.py"
    assert len(set(groups)) == 1 + len(APART) + len(set(TOGETHER.values()))
    assert sorted(["tests/a/test_b.py", *LONGEST_FIRST], key=rank) == [*LONGEST_FIRST, "tests/a/test_b.py"]


def test_a_run_in_workers_shows_how_they_shared_the_tests(run, request):
    result = run("--durations=3")
    if "two workers" in request.node.name:
        result.stdout.fnmatch_lines(["idle at the end: gw* s", "0 s test_a_run_in_workers_*.py"])
    else:
        result.stdout.no_fnmatch_line("idle at the end*")


@pytest.mark.parametrize("waiting", [min(WAITING), "tests/test_other.py"])
def test_what_waits_has_a_worker_that_takes_nothing_else(pytester: pytest.Pytester, waiting: str):
    files = files_of_two_workers(pytester, waiting, {"WORKERS = 4": "WORKERS = 1", "GO_ON = 1": "GO_ON = 0"})
    computing = {"test_first.py", "test_last.py"}
    several = [computing, {waiting}] if waiting in WAITING else [computing | {waiting}]
    assert sorted(files.values(), key=len) == sorted(several, key=len)


def test_one_of_those_for_what_waits_goes_on_with_the_rest(pytester: pytest.Pytester):
    waiting = min(WAITING)
    files = files_of_two_workers(pytester, waiting, {"WORKERS = 4": "WORKERS = 0"})
    *other, most = sorted(files.values(), key=len)  # either of them may have been ready first
    assert most >= {"test_first.py", "test_last.py"}
    assert all(each <= {waiting} for each in other)


def files_of_two_workers(pytester: pytest.Pytester, waiting: str, changes: dict[str, str]) -> dict[str, set[str]]:
    """The files of which each worker ran tests, after changes of the `conftest.py`."""
    conftest = Path(__file__).with_name("conftest.py").read_text()
    for old, new in changes.items():
        assert old in conftest
        conftest = conftest.replace(old, new)
    pytester.makeconftest(conftest)
    for name in ("test_first.py", waiting, "test_last.py"):
        (pytester.path / name).parent.mkdir(parents=True, exist_ok=True)
        (pytester.path / name).write_text("".join(f"def test_{number}(): ...\n" for number in range(3)))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-v", "-n", "2")
    result.assert_outcomes(passed=9)
    files: dict[str, set[str]] = {}
    for worker, file in re.findall(r"\[(gw\d)\].* PASSED (\S+)::", result.stdout.str()):
        files.setdefault(worker, set()).add(file)
    return files


def test_every_file_that_is_ordered_exists():
    root = Path(__file__).parents[1]
    for name in {*APART, *TOGETHER, *LONGEST_FIRST, *WAITING} - set(TOGETHER.values()):
        assert (root / name).exists(), name


def test_bytes_that_change_with_the_time_are_not_in_a_name(run, pytester):
    pytester.makepyfile(
        test_bytes="""
        import os, pytest

        @pytest.mark.parametrize(("raw", "name"), [(b"\\xff" + os.urandom(8), "one"), (b"plain", "two")])
        def test_all(raw, name): ...
        """
    )
    result = run("-v", "test_bytes.py")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines_random(["*test_all?raw-one?*", "*test_all?plain-two?*"])
