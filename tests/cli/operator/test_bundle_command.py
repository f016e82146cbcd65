"""`sparrowmq bundle` at real processes: a healthy cluster, and one of which a part is dead or frozen."""

from __future__ import annotations

import json
import signal
import stat
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparrowmq.cli.main import main
from tests.interop.apache import free_ports
from tests.interop.servers import OurBroker, OurNamesrv

# Each is in a settings file, an account file or on the command line, and in no file of the bundle.
SECRETS = ("haSecret-7Qx", "brokerSecret-8Ry", "tlsPassword-9Sz", "adminSecret-1Ta", "serverPassword-2Ub")
ACCOUNTS = f"""
accounts:
- accessKey: administrator
  secretKey: {SECRETS[3]}
  admin: true
- accessKey: servers
  secretKey: {SECRETS[1]}
  broker: true
  admin: true
"""
LIMIT_S = 30.0


class Closed:
    """A name server, three brokers with accounts and secrets, and an administrator."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        accounts = folder / "plain_acl.yml"
        accounts.write_text(ACCOUNTS)
        self.folder = folder
        self.namesrv = stack.enter_context(OurNamesrv({"metricsExporterType": "PROM", **_metrics_port()}))
        self.brokers = {}
        for name in ("broker-a", "broker-b", "broker-c"):
            settings = {
                "brokerName": name,
                "aclEnable": "true",
                "aclFile": accounts,
                "haSecret": SECRETS[0],
                "brokerAccessKey": "servers",
                "brokerSecretKey": SECRETS[1],
                "tls.client.keyPassword": SECRETS[2],
                "tls.server.keyPassword": SECRETS[4],
                "metricsExporterType": "PROM",
                **_metrics_port(),
            }
            broker = OurBroker(self.namesrv.address, folder / name, settings)
            self.brokers[name] = stack.enter_context(broker)

    def run(self, *words: str, secret: str = SECRETS[3]) -> Result:
        account = ["--access-key", "administrator", "--secret-key", secret]
        given = [*words, "-n", self.namesrv.address, *account]
        return CliRunner().invoke(main, given, prog_name="sparrowmq", catch_exceptions=False)


def _metrics_port() -> dict[str, object]:
    return {"metricsPromExporterPort": free_ports(1)[0]}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    """The last test that takes it kills a broker."""
    with ExitStack() as stack:
        yield Closed(tmp_path_factory.mktemp("closed"), stack)


def texts_in(file: Path) -> dict[str, str]:
    """The texts by path, without the folder that all are in."""
    with tarfile.open(file) as archive:
        found = {}
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            found[member.name.partition("/")[2]] = content.read().decode()
    return found


@pytest.mark.slow
def test_a_bundle_has_all_texts_of_all_servers_and_no_secret(closed: Closed) -> None:
    assert closed.run("topic", "create", "orders").exit_code == 0
    file = closed.folder / "b.tar.gz"
    made = closed.run("bundle", str(file))
    assert made.exit_code == 0, made.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    texts = texts_in(file)
    assert texts["MISSING.txt"] == "nothing is missing\n"
    for name in closed.brokers:
        of = {path.rpartition("/")[2]: text for path, text in texts.items() if path.startswith(f"broker/{name}-0/")}
        assert "boot success" in of["log.txt"] or "registered" in of["log.txt"], of["log.txt"][:500]
        assert "thread MainThread" in of["stacks.txt"] and "task " in of["stacks.txt"]
        assert "sparrowmq: " in of["process.txt"] and f"brokerName={name}" in of["settings.properties"]
        assert "sparrowmq_ready" in of["metrics.txt"]
        assert "putTps" in json.loads(of["status.json"]) and "orders" in json.loads(of["topics.json"])
    (path,) = {each.rpartition("/")[0] for each in texts if each.startswith("namesrv/")}
    assert "sparrowmq_namesrv_brokers" in texts[f"{path}/metrics.txt"] and "broker-a" in texts[f"{path}/log.txt"]
    assert set(json.loads(texts["routes.json"])) >= {"orders"} and json.loads(texts["doctor.json"])
    whole = "".join(texts.values())
    for secret in SECRETS:
        assert secret not in whole, next(path for path, text in texts.items() if secret in text)


@pytest.mark.slow
def test_a_wrong_account_gets_no_text_of_a_broker(closed: Closed) -> None:
    file = closed.folder / "b.tar.gz"
    made = closed.run("bundle", str(file), secret="another-secret")
    assert made.exit_code == 1 and "Check signature failed" in made.stderr
    assert not [path for path in texts_in(file) if path.startswith("broker/")]
    assert "another-secret" not in "".join(texts_in(file).values())


@pytest.mark.slow
def test_half_of_the_cluster_dead_and_frozen_is_named_and_the_rest_is_there(closed: Closed) -> None:
    frozen = closed.brokers["broker-b"].process
    assert frozen is not None
    closed.brokers["broker-c"].kill()
    while "died" not in closed.run("cluster", "health").stderr:
        time.sleep(0.2)
    frozen.send_signal(signal.SIGSTOP)
    file = closed.folder / "b.tar.gz"
    try:
        began = time.monotonic()
        made = closed.run("bundle", str(file))
        took_s = time.monotonic() - began
    finally:
        frozen.send_signal(signal.SIGCONT)
    assert made.exit_code == 1 and "without broker/broker-b-0: " in made.stderr and took_s < LIMIT_S
    texts = texts_in(file)
    assert "broker/broker-b-0: " in texts["MISSING.txt"] and "did not answer" in texts["MISSING.txt"]
    assert "thread MainThread" in texts["broker/broker-a-0/stacks.txt"]
    assert "hangs" in texts["doctor.json"]
    assert "broker/broker-c: it died" in texts["MISSING.txt"] and "broker-c" in texts["lost.json"]


def test_without_a_name_server_the_file_says_so(tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    made = CliRunner().invoke(main, ["bundle", str(file), "-n", "127.0.0.1:9"], prog_name="sparrowmq")
    assert made.exit_code == 1 and "127.0.0.1:9" in texts_in(file)["MISSING.txt"]
    assert "does not answer" in texts_in(file)["doctor.json"]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    made = CliRunner().invoke(main, ["bundle", str(tmp_path / "no" / "b.tar.gz"), "-n", "127.0.0.1:9"])
    assert made.exit_code == 1 and "cannot be written: No such file or directory" in made.stderr
