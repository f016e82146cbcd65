"""The harness itself: Apache's servers, tool and clients, old and new, start, talk to each other and stop."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop import kits
from tests.interop.apache import ApacheBroker, ApacheNamesrv, free_ports, java_program, mqadmin
from tests.interop.wire import Wire

CONVERSATION = Path(__file__).parent / "java" / "Conversation.java"


@pytest.mark.slow
@pytest.mark.nightly  # All parts of it are used by others, too.
@pytest.mark.parametrize(("server", "client"), [("4.9.7", "4.9.8"), ("5.4.0", "5.4.0")])
def test_a_java_client_sends_through_apache_and_mqadmin_sees_it(server, client, tmp_path):
    with ApacheNamesrv(server) as namesrv:
        with ApacheBroker(server, namesrv.address, tmp_path / "store") as broker:
            with Wire(broker.port) as wire:
                assert wire.ask(17, _topic("GoldenTopic")).code == 0
            sent = java_program(client, CONVERSATION, namesrv.address, "send")
            assert sent.stdout.count("SEND_OK") == 6 and sent.stdout.endswith("done\n"), sent.stderr
            status = mqadmin(server, "topicStatus", "-t", "GoldenTopic", "-n", namesrv.address)
            counts = [line.split()[3] for line in status.stdout.splitlines() if line.startswith("broker-a")]
            assert sum(map(int, counts)) >= 8, status.stderr
        assert broker.process is not None and broker.process.returncode == 143  # SIGTERM, obeyed
        assert (tmp_path / "store" / "checkpoint").exists() and not (tmp_path / "store" / "abort").exists()


def test_free_ports_are_neighbours():
    ports = free_ports(4)
    assert len(ports) == 4 and ports[0] > 1023


def test_a_missing_maven_is_a_skip_that_says_so(monkeypatch, tmp_path):
    refused = pytest.raises(kits.PeerMissing, match="no mvn on PATH")
    with only_these_programs(monkeypatch, tmp_path, "java", "javac"), refused:
        kits.server_jars.__wrapped__("4.9.7")


def test_a_java_that_cannot_compile_is_a_skip_that_says_so(monkeypatch, tmp_path):
    refused = pytest.raises(kits.PeerMissing, match=r"no javac beside .*; install a JDK")
    with only_these_programs(monkeypatch, tmp_path, "java", "mvn"), refused:
        kits.server_jars.__wrapped__("4.9.7")


@contextmanager
def only_these_programs(monkeypatch, folder, *names):
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("SPARROWMQ_PEERS", str(folder / "cache"))
    kits.java.cache_clear()
    try:
        yield
    finally:
        kits.java.cache_clear()


def test_an_unknown_release_is_named():
    with pytest.raises(ValueError, match=r"no kit server-1\.0; there are server-4\.9\.7"):
        kits.server_jars("1.0")


def test_the_cache_falls_back_to_the_temporary_folder(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPARROWMQ_PEERS", str(tmp_path / "file" / "below"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert kits.cache_folder().parent == tmp_path


def _topic(name):
    return {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
