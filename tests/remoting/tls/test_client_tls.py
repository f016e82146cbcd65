"""A client's TLS files are loaded again when they have changed, without a restart."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.headers import GetMaxOffset
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.tls.contexts import ClientContext, client_context
from sparrowmq.remoting.tls.tls_settings import ClientTlsSettings
from tests.certificates import Pair, authority, signed


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture
def shown(tmp_path: Path, ours: Pair) -> Pair:
    """The pair that the client shows."""
    return signed(tmp_path, "client", ours)


def renewed(shown: Pair, by: Pair, name: str, days: int = 3650) -> None:
    """Replace the pair as `secure renew` does: first one file, then the other one."""
    folder = shown.key.parent / name
    folder.mkdir()
    newer = signed(folder, name, by, days=days)
    newer.key.replace(shown.key)
    newer.certificate.replace(shown.certificate)


def client(shown: Pair, ours: Pair) -> ClientContext:
    return client_context(
        ClientTlsSettings(client_trust=ours.certificate, client_certificate=shown.certificate, client_key=shown.key)
    )


@contextmanager
def serving(folder: Path, ours: Pair) -> Iterator[tuple[int, list[str]]]:
    """Yield the port of a server that demands certificates, and a list of the names in those that it has seen."""
    own = signed(folder, "server", ours)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    context.load_verify_locations(ours.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    seen: list[str] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                accepted, _ = listening.accept()
            except OSError:
                return
            with accepted, suppress(OSError), context.wrap_socket(accepted, server_side=True) as each:
                subject = (each.getpeercert() or {})["subject"]
                seen.append(dict(pair[0] for pair in subject)["commonName"])  # type: ignore[misc]
                each.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1], seen
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.mark.parametrize("way", ["loop", "socket"])
async def test_a_new_connection_shows_the_renewed_certificate(
    tmp_path: Path, ours: Pair, shown: Pair, way: str
) -> None:
    context = client(shown, ours)
    with serving(tmp_path, ours) as (port, seen):

        async def connect() -> None:
            if way == "socket":
                with context.wrap_socket(
                    socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1"
                ) as connected:
                    connected.send(b"x")
                return
            pool = Pool(SystemClock(), tls=context)
            session = await pool.session(f"127.0.0.1:{port}")
            with pytest.raises(Exception, match=r"."):
                await session.call(GetMaxOffset(topic="T", queue_id=0))
            pool.close()
            await pool.wait_until_ended()

        await connect()
        renewed(shown, ours, "renewed")
        await connect()
    assert seen == ["client", "renewed"]


def test_the_end_is_that_of_the_file_as_it_is_now(ours: Pair, shown: Pair) -> None:
    context = client(shown, ours)
    first = context.ends_at
    renewed(shown, ours, "renewed", days=5)
    assert first is not None and context.ends_at is not None and context.ends_at < first


def test_a_pair_that_cannot_be_used_is_named_once_it_stays(
    tmp_path: Path, ours: Pair, shown: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    context = client(shown, ours)
    key = shown.key.read_text()
    shown.key.write_text(ours.key.read_text())
    assert context.problem(0) == "", "its certificate may come in a moment"
    for _ in range(3):
        assert "the changed TLS files are not used: tls.client.certPath" in context.problem(0)
    assert caplog.text.count("other servers are shown the old ones") == 1
    shown.key.write_text(key)
    assert context.problem(0) == ""
    assert "the TLS files have changed" in caplog.text


def test_files_that_are_back_unchanged_are_no_problem(ours: Pair, shown: Pair) -> None:
    context, folder = client(shown, ours), shown.key.parent
    away = folder.rename(folder.with_name("away"))
    assert context.problem(0) == "" and "cannot be read" in context.problem(0)
    away.rename(folder)
    assert context.problem(0) == ""


def test_changed_trust_counts_and_old_trust_is_over(tmp_path: Path, ours: Pair, shown: Pair) -> None:
    trust = tmp_path / "trust.pem"
    trust.write_text(ours.certificate.read_text())
    context = client(shown, Pair(trust, ours.key))
    with serving(tmp_path, ours) as (port, _):
        trust.write_text(authority(tmp_path, "stranger").certificate.read_text())
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_files_that_cannot_be_used_at_the_start_are_an_error(ours: Pair, shown: Pair) -> None:
    shown.key.write_text("none")
    with pytest.raises(ConfigError, match=r"tls\.client\.keyPath"):
        client(shown, ours)
