"""A broker loads only what it uses: other modules cost an idle broker memory, and its start milliseconds (ADR 42)."""

import sys

import pytest

from bench.imports import by_package, loaded
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.requests.admin_headers import UpdateBrokerConfig
from sparrowmq.protocol.requests.user_headers import CreateAcl, CreateUser, DeleteAcl, UpdateUser
from tests.broker.live import live_broker


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
        "sparrowmq.broker.member",
        "sparrowmq.broker.replication.ha_slave",
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


@pytest.mark.parametrize(
    ("request_", "body", "answer"),
    [
        (CreateUser("u"), b'{"username":"u"}', "no users"),
        (UpdateUser("u"), b'{"username":"u"}', "no users"),
        (CreateAcl("User:u"), b"{}", "no users"),
        (DeleteAcl("User:u"), b"", "no users"),
        (UpdateBrokerConfig(), b"longPollingEnable=false\n", "no file"),
    ],
)
async def test_a_request_loads_no_more(tmp_path, monkeypatch, request_, body, answer):
    """The first one would keep the broker's loop for 30 to 150 ms."""
    names = ("sparrowmq.auth.users", "javaproperties")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    async with live_broker(tmp_path) as live:
        try:
            await live.session.call(request_, body)
        except RemoteError as error:
            assert answer in str(error)
        assert not sys.modules.keys() & {*names}


def test_modules_are_summed_up_by_package():
    modules = {"a": 5, "a.b": 7, "sparrowmq.store.x": 3, "sparrowmq.store": 1, "sparrowmq": 2}
    assert by_package(modules) == {"a": (2, 12), "sparrowmq.store": (2, 4), "sparrowmq": (1, 2)}
