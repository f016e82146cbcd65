"""What holds for every test: which run side by side, and what may not pass unseen on CI.

`./run test` has more workers than processors (ADR 8). A file's tests stay together in one of them, so that what a
module's fixture starts is started once, and so do the files that share a session's fixture. What takes longest begins
first, or the other workers would wait for it at the end. With the slow tests, workers beyond the fourth only run what
mostly waits.
On CI a skipped test is an error unless its reason says what that machine really lacks.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests import spark_classes

pytest_plugins = ["pytester"]

# A script's background job inherits that SIGINT is ignored, and so would every server that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more about what else the machine does.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Java, Maven, Go, Node, the C++ client and Spark are there on CI: a test that misses one of them hides a fault of ours.
ALLOWED_SKIPS = [
    r"only on (macOS|Windows)",
    r"needs Python 3\.1[2-9]",
    r"needs (etcd|Chromium|Docker|Prometheus|Redis|PostgreSQL|a network|a loop device|systemd-analyze|strace)",
    r"needs mount namespaces",
    r"keeps its files in memory",
    r"RocketMQ's own server is not on this machine",
    r"Apache's 4\.9\.7 cannot",
    r"^(Skipped: )?(cpp|go|node|rust|five-[a-z]+|java-[0-9.]+|apache-[0-9.]+) cannot: ",
]

# Files and folders that share a Spark session, Java clients, brokers of our own client, the console's browser, or the
# generated pages: each group has one worker.
TOGETHER = {
    "tests/console/pages": "console",
    "tests/console/layout": "console",
    "tests/console/login/test_socket_sessions.py": "console",
    "tests/console/test_console_pages.py": "console",
    "tests/console/test_walk.py": "console",
    "tests/spark/commands": "pipelines",
    "tests/spark/pipelines/lake": "spark",
    "tests/spark/pipelines/tables": "spark",
    "tests/spark/pipelines": "pipelines",
    "tests/spark/lakehouse/test_lake_runner.py": "spark",
    "tests/spark/lakehouse/test_spark_workers.py": "spark",
    "tests/spark/test_lag.py": "spark",
    "tests/spark/test_notebook.py": "spark",
    "tests/spark/test_ordering.py": "spark",
    "tests/spark/test_programs.py": "spark",
    "tests/spark/test_register.py": "spark",
    "tests/spark/test_repeats.py": "spark",
    "tests/spark/test_with_spark.py": "spark",
    "tests/interop/test_clients.py": "clients",
    "tests/interop/test_cpp_client.py": "clients",
    "tests/interop/test_java_client.py": "clients",
    "tests/interop/test_features.py": "clients",
    "tests/interop/test_matrix.py": "clients",
    "tests/interop/test_mqadmin.py": "mqadmin",
    "tests/interop/test_our_mqadmin.py": "mqadmin",
    "tests/interop/test_our_client.py": "our client",
    "tests/interop/test_our_readers.py": "our client",
    "tests/interop/test_our_requests.py": "our client",
    "tests/interop/test_our_transactions.py": "our client",
    "tests/interop/test_at_a_time.py": "our client",
    "tests/interop/test_asked_consumers.py": "our client",
    "tests/tools/test_docs.py": "pages",
    "tests/tools/test_floors.py": "pages",
    "tests/tools/test_prose.py": "pages",
    "tests/test_tidy.py": "pages",
}
# Files whose tests take long and share nothing: each test goes where there is time.
APART = {"tests/store/test_crash_states.py"}
# What takes ten seconds or more, by how long it takes.
LONGEST_FIRST = [
    "pipelines",
    "spark",
    "tests/interop/test_five.py",
    "tests/conditions/test_causes.py",
    "clients",
    "tests/interop/test_store_exchange.py",
    "our client",
    "console",
    "tests/conditions/test_game_day.py",
    "tests/interop/test_users.py",
    "tests/spark/lakehouse/test_keyed_batch.py",
    "tests/spark/lakehouse/test_recorded_progress.py",
    "tests/crash/test_operations.py",
    "tests/console/test_accessibility.py",
    "tests/crash/test_pop_fire.py",
    "tests/interop/test_transactions.py",
    "tests/crash/test_rounds.py",
    "tests/crash/test_failover.py",
    "tests/broker/test_member.py",
    "tests/examples/flights/test_show.py",
    "tests/examples/flights/test_session.py",
    "tests/client/stress/test_stress.py",
    "tests/spark/test_lake_page.py",
    "tests/simulation/test_simulation.py",
    "tests/console/test_outage.py",
    "tests/spark/test_slow_stream.py",
    "tests/store/test_crash_states.py",
    "tests/interop/test_tls.py",
    "mqadmin",
    "tests/interop/test_replication.py",
    "tests/interop/test_registration.py",
    "tests/interop/test_access.py",
    "tests/client/test_wrong_calls.py",
    "tests/spark/test_lake_command.py",
    "tests/test_operating_page.py",
    "tests/interop/test_figures.py",
    "tests/examples/flights/test_tables.py",
    "tests/test_closed_cluster_page.py",
    "tests/cli/test_pressure.py",
    "tests/interop/test_shared_namespaces.py",
    "tests/test_conftest.py",
    "tests/interop/test_apache.py",
    "tests/client/consuming/test_consumer.py",
    "tests/tools/test_mutants.py",
    "tests/interop/test_spark_source.py",
]
# What mostly waits for limits, disks and other programs, and uses less than a third of a processor.
WAITING = {
    "tests/broker/test_member.py",
    "tests/conditions/test_causes.py",
    "tests/conditions/test_game_day.py",
    "tests/crash/test_failover.py",
    "tests/crash/test_operations.py",
    "tests/crash/test_pop_fire.py",
    "tests/crash/test_rounds.py",
    "tests/interop/test_five.py",
    "tests/interop/test_transactions.py",
}
WORKERS = 4  # which run anything, when there are slow tests
GO_ON = 1  # of the others, once nothing waits any more: the first four leave a processor half idle
LONGEST_SHOWN = 30
SPARK, FLIGHTS = Path(__file__).with_name("spark"), Path(__file__).parent / "examples" / "flights"
GROUPS: pytest.StashKey[Groups] = pytest.StashKey()


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each worker group after group of tests, in the order in which they were collected.

    With the slow tests, each worker first takes groups of its kind: the first four what computes, the others what
    waits. The first five end with what is left, and the others end.

    Attributes:
        for_waiting: the workers that first take what waits. One that replaces a worker that died takes anything.
        ending: those of them that take nothing else.
        took_s: how long the tests of each group took, without their fixtures.
        ended_s: when each worker ended its last test.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self.for_waiting: set[WorkerController] = set()
        self.ending: set[WorkerController] = set()
        self.has_slow_tests = "not slow" not in config.option.markexpr
        self.took_s: defaultdict[str, float] = defaultdict(float)
        self.ended_s: dict[str, float] = {}

    def _split_scope(self, nodeid: str) -> str:
        group = group_of(nodeid)
        # Without the slow tests, a second session costs more time than two workers save.
        return "spark" if group == "pipelines" and not self.has_slow_tests else group

    def schedule(self) -> None:
        if self.collection is None and self.has_slow_tests:
            self.for_waiting = set(self.nodes[WORKERS:])
            self.ending = set(self.nodes[WORKERS + GO_ON :])
        super().schedule()

    def _assign_work_unit(self, node: WorkerController) -> None:
        group = self._next(node)
        if group is not None:
            self.workqueue.move_to_end(group, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self.workqueue and not node.shutting_down and self._next(node) is None:
            node.shutdown()  # once it has run what it has
        else:
            super()._reschedule(node)

    def _next(self, node: WorkerController) -> str | None:
        """Return the next group for a worker; None if none is left that it takes."""
        if not self.for_waiting:
            return next(iter(self.workqueue), None)
        waits = node in self.for_waiting
        fitting = (group for group in self.workqueue if is_waiting(group) == waits)
        return next(fitting, None if node in self.ending else next(iter(self.workqueue), None))

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        self.took_s[group_of(self.registered_collections[node][item_index])] += duration
        self.ended_s[node.gateway.id] = time.monotonic()
        super().mark_test_complete(node, item_index, duration)

    def told(self) -> Iterator[str]:
        """Lines that show whether LONGEST_FIRST fits."""
        end_s = max(self.ended_s.values(), default=0.0)
        waits = ", ".join(f"{name} {end_s - ended_s:.0f} s" for name, ended_s in sorted(self.ended_s.items()))
        yield f"idle at the end: {waits}"
        for took_s, group in sorted(((s, group) for group, s in self.took_s.items()), reverse=True)[:LONGEST_SHOWN]:
            yield f"{took_s:.0f} s {group}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups:
    config.stash[GROUPS] = Groups(config, log)
    return config.stash[GROUPS]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show with --durations how well the workers shared the tests."""
    groups = config.stash.get(GROUPS, None)
    if groups is not None and config.option.durations:
        terminalreporter.section("slowest groups")
        for line in groups.told():
            terminalreporter.write_line(line)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Names bytes by their argument: compressed ones hold the time, and each worker would name the test differently."""
    return argname if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()) else None


def pytest_configure(config: pytest.Config) -> None:
    """Let each worker begin with another part of the tests: what one has read and compiled, the others then load."""
    gc.disable()  # until all tests are collected: nothing of them is garbage
    worker = getattr(config, "workerinput", None)
    if worker is not None and config.args == config.getini("testpaths"):
        folders = [path for name in config.args for path in sorted(Path(name).iterdir()) if may_have_tests(path)]
        first = len(folders) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args = [str(path) for path in folders[first:] + folders[:first]]


def may_have_tests(path: Path) -> bool:
    return path.name.startswith("test_") or (path.is_dir() and path.name != "__pycache__")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Give all workers the tests in one order, although each began with others; what takes longest comes first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path)
    yield
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(group_of(item.nodeid)))


def group_of(nodeid: str) -> str:
    """The tests of one group run in one worker, one after the other."""
    file = nodeid.partition("::")[0]
    if file in APART:
        return nodeid
    return next((group for place, group in TOGETHER.items() if f"{file}/".startswith(f"{place}/")), file)


def is_waiting(group: str) -> bool:
    return group.partition("::")[0] in WAITING


def rank(group: str) -> int:
    file = group.partition("::")[0]
    return LONGEST_FIRST.index(file) if file in LONGEST_FIRST else len(LONGEST_FIRST)


def pytest_collection_finish() -> None:
    """Half a million objects stay to the end: to look through them for garbage took an eighth of all tests' time."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let Spark start with less work in this process and its children. The time limit of the test begins later."""
    if item.path.is_relative_to(SPARK) or item.path.is_relative_to(FLIGHTS):
        spark_classes.use(may_make=item.get_closest_marker("slow") is not None)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """What `caplog` shows is text: a logger of PySpark's makes JSON of it for good, once pytest has listened to it."""
    listening = item.config.pluginmanager.get_plugin("logging-plugin")
    if listening is not None:
        listening.caplog_handler.setFormatter(listening.formatter)


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the scenarios of tests/scenarios say into their files",
    )


@pytest.fixture(autouse=True, scope="session")
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Programs that tests start keep nothing in the home of the user."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True, scope="session")
def half_full_disk() -> Iterator[None]:
    """Stores here see a half full disk: on a nearly full one they delete early, whatever a test expects."""
    from sparrowmq.store.vfs import Disk

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Disk, "used_ratio", lambda disk, path: 0.5)
        yield
