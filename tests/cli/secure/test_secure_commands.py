"""`sparrowmq secure`: files that are private, complete, and never overwritten."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparrowmq.cli import secure as secure_module
from sparrowmq.cli.main import main
from sparrowmq.errors import ConfigError


def secure(*words: object) -> Result:
    return CliRunner().invoke(main, ["secure", *map(str, words)])


def expiry(certificate: Path) -> str:
    found = ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]
    return str(found["notAfter"])


def test_private_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    made = secure("init", tmp_path / "cluster")
    assert made.exit_code == 0, made.output
    assert f"mqbroker -c {tmp_path}/cluster/broker-a/broker.conf" in made.output
    for path in [tmp_path / "cluster", *(tmp_path / "cluster").rglob("*")]:
        is_public = path.name.endswith(".pem") and "key" not in path.name
        assert path.is_dir() or is_public or path.stat().st_mode & 0o777 == 0o600, path
        assert not path.is_dir() or path.stat().st_mode & 0o777 == 0o700, path
    assert not list(tmp_path.glob(".cluster*"))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    refused = secure("init", tmp_path / "cluster")
    assert refused.exit_code == 2 and "name a new folder" in refused.stderr
    assert not list((tmp_path / "cluster").iterdir())


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ConfigError("install the program openssl")

    monkeypatch.setattr(secure_module, "sign", fail)
    refused = secure("init", tmp_path / "cluster")
    assert refused.exit_code == 2 and "secure init: install" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_settings_name_the_place_of_the_files_at_the_servers(tmp_path: Path) -> None:
    assert (
        secure("init", tmp_path / "cluster", "--place", "/etc/mq/", "--data", "/data/", "--host", "10.0.0.5").exit_code
        == 0
    )
    conf = (tmp_path / "cluster" / "broker-a" / "broker.conf").read_text()
    assert "aclFile=/etc/mq/broker-a/accounts.yml\n" in conf and "brokerIP1=10.0.0.5\n" in conf
    assert "storePathRootDir=/data/broker-a/store\n" in conf


def test_certificates_are_renewed_with_their_keys(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    secure("init", folder, "--days", "5")
    key = (folder / "broker-a" / "key.pem").read_bytes()
    before = expiry(folder / "broker-a" / "certificate.pem")
    done = secure("renew", folder, "--days", "90")
    assert done.exit_code == 0 and "signed 4 certificates" in done.output
    assert expiry(folder / "broker-a" / "certificate.pem") != before
    assert (folder / "broker-a" / "key.pem").read_bytes() == key
    strange = secure("renew", tmp_path)
    assert strange.exit_code == 2 and "plan.json cannot be read" in strange.stderr


def test_a_client_is_added(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    secure("init", folder)
    added = secure("add-client", folder, "billing-service")
    assert added.exit_code == 0 and "accessKey: billing-service" in added.output
    secret = (folder / "billing-service" / "environment").read_text().rpartition("=")[2].strip()
    assert f"secretKey: {secret}" in added.output
    names = {path.name for path in (folder / "billing-service").iterdir()}
    assert names == {"certificate.pem", "key.pem", "ca.pem", "tls.properties", "environment"}
    assert "signed 5 certificates" in secure("renew", folder).output
    for taken in ("billing-service", "administrator", "broker-a"):
        assert secure("add-client", folder, taken).exit_code == 2
