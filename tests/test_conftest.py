from pathlib import Path

import pytest

SKIPPING = """
import pytest

@pytest.mark.skip(reason="no Java on this machine")
def test_java(): ...

@pytest.mark.skip(reason="needs Python 3.13")
def test_new_syntax(): ...

def test_plain(): ...
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch):
    """Runs pytest in a folder of its own that has our conftest.py and the test above."""
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makepyfile(SKIPPING)

    def run(**environment: str) -> pytest.RunResult:
        for name in ("CI", "FAILED_CHECKS"):
            monkeypatch.setenv(name, environment.get(name, ""))
        return pytester.runpytest_subprocess("-p", "no:cacheprovider")

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
