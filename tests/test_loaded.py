"""A broker loads only what it uses: other modules cost an idle broker memory, and its start milliseconds (ADR 42)."""

import pytest

from bench.imports import by_package, loaded


@pytest.fixture(scope="module")
def modules():
    return loaded()


@pytest.mark.parametrize(
    "name",
    [
        "hashlib",
        "http.client",
        "javaproperties",
        "lark",
        "logging.handlers",
        "numpy",
        "prometheus_client",
        "shutil",
        "sparrowmq.auth.account_files",
        "sparrowmq.broker.election",
        "sparrowmq.broker.replication.replica",
        "sparrowmq.client",
        "sparrowmq.namesrv",
        "sparrowmq.remoting.tls.self_signed",
        "tempfile",
        "yaml",
    ],
)
def test_a_broker_that_does_not_use_a_module_does_not_load_it(modules, name):
    assert "sparrowmq.broker.broker" in modules
    assert [each for each in modules if f"{each}.".startswith(f"{name}.")] == []


def test_modules_are_summed_up_by_package():
    modules = {"a": 5, "a.b": 7, "sparrowmq.store.x": 3, "sparrowmq.store": 1, "sparrowmq": 2}
    assert by_package(modules) == {"a": (2, 12), "sparrowmq.store": (2, 4), "sparrowmq": (1, 2)}
