"""What holds for every test. On CI a skipped test is an error unless its reason says what that machine really lacks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

pytest_plugins = ["pytester"]

# Java, Maven, the C++ client and Spark are there on CI: a test that misses one of them hides a fault of ours.
ALLOWED_SKIPS = [
    r"only on (macOS|Windows)",
    r"needs Python 3\.1[2-9]",
    r"needs (etcd|Docker|a network)",
    r"RocketMQ's own server is not on this machine",
    r"Apache's 4\.9\.7 cannot",
]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turns what must not pass unseen on CI into errors of the run, before the summary line is written."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("CI"):
        return
    errors = [*unexpected_skips(reporter.stats.get("skipped", [])), *failed_checks()]
    reporter.stats.setdefault("error", []).extend(errors)
    if errors and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def unexpected_skips(skipped: list[pytest.TestReport]) -> Iterator[pytest.TestReport]:
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(re.search(allowed, reason) for allowed in ALLOWED_SKIPS):
            yield error(
                report.nodeid,
                f"{reason}\nCI has what this test needs (see ALLOWED_SKIPS in tests/conftest.py)",
            )


def failed_checks() -> Iterator[pytest.TestReport]:
    for verb in os.environ.get("FAILED_CHECKS", "").split():
        yield error(f"./run {verb}", f"`./run {verb}` failed; its own lines are above the tests'")


def error(node: str, text: str) -> pytest.TestReport:
    return pytest.TestReport(node, (node, None, node), {}, "failed", text, "setup")
