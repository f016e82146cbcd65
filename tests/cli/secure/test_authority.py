"""Certificates that `sparrowmq secure` makes, read and tried by Python's TLS."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from sparrowmq.cli.secure import CertificateFiles, make_authority, sign
from sparrowmq.errors import ConfigError


def files(folder: Path, stem: str) -> CertificateFiles:
    return CertificateFiles(folder / f"{stem}.pem", folder / f"{stem}.key")


@pytest.fixture
def ours(tmp_path: Path) -> CertificateFiles:
    made = files(tmp_path, "ca")
    make_authority(made, "our CA", 10)
    return made


def shakes_hands(server: CertificateFiles, client: CertificateFiles, ours: CertificateFiles, host: str) -> None:
    """Raises: ssl.SSLError, one of both refuses the other."""
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.load_cert_chain(server.certificate, server.key)
    accepting.load_verify_locations(ours.certificate)
    accepting.verify_mode = ssl.CERT_REQUIRED
    asking = ssl.create_default_context(cafile=ours.certificate)
    asking.load_cert_chain(client.certificate, client.key)
    asking.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        asking.wrap_bio(down, up, server_hostname=host),
        accepting.wrap_bio(up, down, server_side=True),
    ]
    for end in ends * 3:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    ends[1].write(b"x")
    assert ends[0].read(1) == b"x"


def test_servers_and_clients_trust_each_other_and_no_client_poses_as_a_server(
    tmp_path: Path, ours: CertificateFiles
) -> None:
    server, client = files(tmp_path, "server"), files(tmp_path, "client")
    sign(server, "broker-a", ("127.0.0.1", "broker.example"), ours, 5)
    sign(client, "orders-service", (), ours, 5)
    for host in ("127.0.0.1", "broker.example"):
        shakes_hands(server, client, ours, host)
        shakes_hands(server, server, ours, host)  # a broker at a name server
    with pytest.raises(ssl.SSLError, match="mismatch"):
        shakes_hands(server, client, ours, "another.example")
    with pytest.raises(ssl.SSLError, match="unsuitable certificate purpose"):
        shakes_hands(client, server, ours, "orders-service")


def test_another_authority_is_not_trusted(tmp_path: Path, ours: CertificateFiles) -> None:
    theirs, server, client = (files(tmp_path, name) for name in ("theirs", "server", "client"))
    make_authority(theirs, "our CA", 10)
    sign(server, "broker-a", ("127.0.0.1",), ours, 5)
    sign(client, "orders-service", (), theirs, 5)
    with pytest.raises(ssl.SSLError):
        shakes_hands(server, client, ours, "127.0.0.1")


def test_keys_are_private_and_stay_when_a_certificate_is_renewed(tmp_path: Path, ours: CertificateFiles) -> None:
    server = files(tmp_path, "server")
    sign(server, "broker-a", ("127.0.0.1",), ours, 5)
    key, first = server.key.read_bytes(), server.certificate.read_bytes()
    sign(server, "broker-a", ("127.0.0.1",), ours, 5)
    assert server.key.read_bytes() == key and server.certificate.read_bytes() != first
    assert {each.key.stat().st_mode & 0o777 for each in (ours, server)} == {0o600}


def test_without_openssl_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="install the program openssl"):
        make_authority(files(tmp_path, "ca"), "our CA", 10)


def test_a_refusal_of_openssl_is_shown(tmp_path: Path, ours: CertificateFiles) -> None:
    with pytest.raises(ConfigError, match="openssl cannot make a certificate"):
        sign(files(tmp_path, "server"), "broker-a", (), CertificateFiles(ours.certificate, tmp_path / "missing.key"), 5)
