"""Registration across implementations: Apache's brokers at our name server, our broker at Apache's, mqadmin at ours."""

import json
import re
import time

import pytest

from tests.interop.apache import ApacheBroker, ApacheNamesrv, mqadmin
from tests.interop.servers import SETTINGS, OurBroker, OurNamesrv, topic_fields
from tests.interop.wire import Wire

pytestmark = pytest.mark.slow

CLUSTER, ROUTE, TOPICS, CREATE, DELETE = 106, 105, 206, 17, 215
VERSIONS = ["4.9.7", pytest.param("5.4.0", marks=pytest.mark.nightly)]


def ask(address, code, fields=None):
    host, _, port = address.rpartition(":")
    with Wire(int(port), host) as wire:
        return wire.ask(code, fields)


def queues(namesrv, topic):
    """Write queues by broker, or None without a route."""
    reply = ask(namesrv, ROUTE, {"topic": topic})
    if reply.code == 17:
        return None
    return {row["brokerName"]: row["writeQueueNums"] for row in json.loads(reply.body)["queueDatas"]}


def brokers(namesrv):
    quoted = re.sub(rb"([{,])(\d+):", rb'\1"\2":', ask(namesrv, CLUSTER).body)
    table = json.loads(quoted)["brokerAddrTable"]
    return {name: list(broker["brokerAddrs"].values()) for name, broker in table.items()}


def until(condition, limit_s=20.0):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def namesrv():
    with OurNamesrv() as running:
        yield running.address


@pytest.mark.covers("S-ROUTE-12")
@pytest.mark.parametrize(
    ("version", "settings"),
    [
        ("4.9.7", {}),
        pytest.param("5.4.0", {}, marks=pytest.mark.nightly),
        pytest.param("4.9.7", {"compressedRegister": "true"}, marks=pytest.mark.nightly),
        pytest.param("5.4.0", {"compressedRegister": "true"}, marks=pytest.mark.nightly),
    ],
)
def test_a_broker_of_apache_comes_and_goes_at_our_name_server(namesrv, tmp_path, version, settings):
    with ApacheBroker(version, namesrv, tmp_path / "store", SETTINGS | settings) as broker:
        assert brokers(namesrv) == {"broker-a": [broker.address]}
        assert queues(namesrv, "TBW102") == {"broker-a": 8} and queues(namesrv, "DefaultCluster") == {"broker-a": 16}
        assert ask(broker.address, CREATE, topic_fields("Orders", 3)).code == 0
        until(lambda: queues(namesrv, "Orders") == {"broker-a": 3})
        assert queues(namesrv, "TBW102") == {"broker-a": 8}
    assert brokers(namesrv) == {} and queues(namesrv, "Orders") is None


def test_a_broker_of_apache_that_is_killed_is_gone_at_once(namesrv, tmp_path):
    with ApacheBroker("4.9.7", namesrv, tmp_path / "store", SETTINGS) as broker:
        assert brokers(namesrv)
        broker.kill()
        until(lambda: brokers(namesrv) == {}, limit_s=2)


@pytest.mark.parametrize("version", VERSIONS)
def test_our_broker_comes_changes_and_goes_at_apaches_name_server(tmp_path, version):
    with ApacheNamesrv(version) as namesrv:
        with OurBroker(namesrv.address, tmp_path / "store") as broker:
            assert brokers(namesrv.address) == {"broker-a": [broker.address]}
            assert queues(namesrv.address, "TBW102") == {"broker-a": 8}
            for number in range(1, 6):
                assert ask(broker.address, CREATE, topic_fields(f"T{number}", number)).code == 0
                assert queues(namesrv.address, f"T{number}") == {"broker-a": number}  # When the call returns.
            assert queues(namesrv.address, "TBW102") == {"broker-a": 8} and queues(namesrv.address, "T1")
        assert brokers(namesrv.address) == {} and queues(namesrv.address, "T1") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_our_broker_tells_a_restarted_name_server_of_apache_everything(tmp_path, version):
    with ApacheNamesrv(version) as first:
        broker = OurBroker(first.address, tmp_path / "store")
        broker.__enter__()
        assert ask(broker.address, CREATE, topic_fields("Orders", 3)).code == 0
    try:
        with ApacheNamesrv(version, first.port) as second:
            until(lambda: queues(second.address, "Orders") == {"broker-a": 3})
            assert queues(second.address, "TBW102") == {"broker-a": 8}
            assert ask(broker.address, CREATE, topic_fields("Later", 1)).code == 0
            assert queues(second.address, "Later") == {"broker-a": 1} and queues(second.address, "Orders")
    finally:
        broker.__exit__()


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["4.9.7", "5.4.0"])
def test_our_broker_is_found_again_at_apaches_when_another_of_its_name_has_come_and_gone(tmp_path, version):
    settings = {"registerNameServerPeriod": 10_000}
    with ApacheNamesrv(version) as namesrv, OurBroker(namesrv.address, tmp_path / "a", settings) as broker:
        with OurBroker(namesrv.address, tmp_path / "b", settings) as other:
            assert brokers(namesrv.address) == {"broker-a": [other.address]}
        assert queues(namesrv.address, "TBW102") is None
        until(lambda: brokers(namesrv.address) == {"broker-a": [broker.address]})
        assert queues(namesrv.address, "TBW102") == {"broker-a": 8}


def test_brokers_of_both_kinds_share_a_topic(namesrv, tmp_path):
    with (
        ApacheBroker("4.9.7", namesrv, tmp_path / "theirs", SETTINGS | {"brokerName": "theirs"}) as theirs,
        OurBroker(namesrv, tmp_path / "ours", {"brokerName": "ours"}) as ours,
    ):
        for broker in (theirs, ours):
            assert ask(broker.address, CREATE, topic_fields("Orders", 2)).code == 0
        until(lambda: queues(namesrv, "Orders") == {"theirs": 2, "ours": 2})
        theirs.kill()  # to stop in order takes it nine seconds


def table(text):
    """The rows of mqadmin's output, without its headline."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["4.9.7", "5.4.0"])
def test_mqadmin_finds_and_changes_everything_at_our_name_server(namesrv, tmp_path, version):
    def admin(*words):
        done = mqadmin(version, *words, "-n", namesrv)
        assert "Exception" not in done.stderr, done.stderr
        return done.stdout

    with OurBroker(namesrv, tmp_path / "store") as broker:
        assert "create topic to" in admin("updateTopic", "-c", "DefaultCluster", "-t", "Orders", "-r", "4", "-w", "4")
        assert '"writeQueueNums":4' in admin("topicRoute", "-t", "Orders").replace(" ", "")
        assert {"Orders", "DefaultCluster", "broker-a"} <= {row[0] for row in table(admin("topicList"))}
        assert "broker-a" in admin("clusterList") and broker.address in admin("clusterList")
        assert "wipe write perm of broker[broker-a]" in admin("wipeWritePerm", "-b", "broker-a")
        assert json.loads(ask(namesrv, ROUTE, {"topic": "Orders"}).body)["queueDatas"][0]["perm"] == 4
        admin("addWritePerm", "-b", "broker-a")
        assert json.loads(ask(namesrv, ROUTE, {"topic": "Orders"}).body)["queueDatas"][0]["perm"] == 6
        admin("updateKvConfig", "-s", "N", "-k", "k", "-v", "v")
        assert ask(namesrv, 101, {"namespace": "N", "key": "k"}).fields == {"value": "v"}
        admin("deleteKvConfig", "-s", "N", "-k", "k")
        assert ask(namesrv, 101, {"namespace": "N", "key": "k"}).code == 22
        assert "listenPort" in admin("getNamesrvConfig") and "kvConfigPath" in admin("getNamesrvConfig")
        admin("deleteTopic", "-c", "DefaultCluster", "-t", "Orders")
        assert queues(namesrv, "Orders") is None
