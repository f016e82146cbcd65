"""What servers show, what clients believe, and files that change."""

import asyncio
import logging
import os
import re
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.errors import BrokerUnreachable, ConfigError, ConnectionClosed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.server import Server
from sparrowmq.remoting.session import Session
from sparrowmq.remoting.tls.contexts import (
    LOG_AGAIN_S,
    POLL_S,
    ServerTls,
    client_context,
    self_signed_context,
    server_context,
)
from sparrowmq.remoting.tls.tls_settings import ClientAuth, ClientTlsSettings, ServerTlsSettings, TlsMode
from sparrowmq.testing.clock import TURNS_AFTER_TIMER, ManualClock
from tests.certificates import Pair, authority, encrypted, signed
from tests.remoting.conftest import until
from tests.remoting.test_server import PULL, answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def ours(folder: Path) -> Pair:
    return authority(folder)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Pair:
    return authority(folder, "another authority")


@pytest.fixture(scope="module")
def server(folder: Path, ours: Pair) -> Pair:
    return signed(folder, "server", ours)


@pytest.fixture(scope="module")
def client(folder: Path, ours: Pair) -> Pair:
    return signed(folder, "client", ours)


def showing(pair: Pair, **settings: object) -> ServerTlsSettings:
    return ServerTlsSettings(certificate=pair.certificate, key=pair.key, **settings)  # type: ignore[arg-type]


def trusting(who: Pair, shown: Pair | None = None, **settings: object) -> ssl.SSLContext:
    own = {"client_certificate": shown.certificate, "client_key": shown.key} if shown else {}
    return client_context(ClientTlsSettings(client_trust=who.certificate, **own, **settings))  # type: ignore[arg-type]


@asynccontextmanager
async def asking(settings: ServerTlsSettings, tls: ssl.SSLContext | None) -> AsyncIterator[Session]:
    """A session to a server with these settings."""
    clock = SystemClock()
    pool = Pool(clock, tls=tls)
    async with Server(answer, clock, "127.0.0.1", 0, tls=ServerTls(settings, clock)) as running:
        try:
            yield await pool.session(f"127.0.0.1:{running.port}")
        finally:
            pool.close()
            await pool.wait_until_ended()
            await until(lambda: not running.sessions)  # It has said what it has to say of it.


async def test_a_server_is_believed_that_the_right_authority_vouches_for(server: Pair, ours: Pair) -> None:
    async with asking(showing(server), trusting(ours)) as session:
        assert (await session.call(PULL)).header.next_begin_offset == 1


async def test_a_server_of_another_authority_is_refused_with_a_clear_line_at_both_ends(
    folder: Path, ours: Pair, theirs: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = signed(folder, "stranger", theirs)
    with pytest.raises(BrokerUnreachable, match=r"certificate is refused: unable to get local issuer.*trustCertPath"):
        async with asking(showing(stranger), trusting(ours)):
            pass
    # asyncio's clients leave without an alert; whoever sends one is told of with it, see below.
    assert re.search(r"refused the connection of 127.0.0.1:\d+: it left during .* does not trust", caplog.text)


async def test_what_a_client_says_against_our_certificate_is_told(
    server: Pair, theirs: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    def shake_hands(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as plain, pytest.raises(ssl.SSLError):
            trusting(theirs).wrap_socket(plain, server_hostname="127.0.0.1")

    tls = ServerTls(showing(server), SystemClock())
    async with Server(answer, SystemClock(), "127.0.0.1", 0, tls=tls) as running:
        await asyncio.to_thread(shake_hands, running.port)
        await until(lambda: not running.sessions)
    assert "TLS failed: tlsv1 alert unknown ca" in caplog.text


async def test_an_expired_certificate_is_refused_with_a_clear_line_at_both_ends(
    folder: Path, ours: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    old = signed(folder, "old", ours, days=-1)
    with pytest.raises(BrokerUnreachable, match="certificate is refused: certificate has expired"):
        async with asking(showing(old), trusting(ours)):
            pass
    assert "it left during the TLS handshake; perhaps it does not trust the certificate" in caplog.text


async def test_a_certificate_for_another_address_is_refused_unless_names_do_not_matter(
    folder: Path, ours: Pair
) -> None:
    elsewhere = signed(folder, "elsewhere", ours, host="DNS:mq.example")
    with pytest.raises(BrokerUnreachable, match="IP address mismatch"):
        async with asking(showing(elsewhere), trusting(ours)):
            pass
    async with asking(showing(elsewhere), trusting(ours, checks_server_name=False)) as session:
        await session.call(PULL)


async def test_who_does_not_ask_gets_on_with_any_certificate(folder: Path, theirs: Pair) -> None:
    for careless in (ClientTlsSettings(checks_server=False), ClientTlsSettings(tls_test_mode=True)):
        async with asking(showing(signed(folder, "any", theirs)), client_context(careless)) as session:
            await session.call(PULL)


async def test_a_client_without_certificate_is_refused_where_one_is_required(
    server: Pair, client: Pair, ours: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    settings = showing(server, client_auth=ClientAuth.REQUIRE, trust=ours.certificate)
    async with asking(settings, trusting(ours, client)) as session:
        await session.call(PULL)
    # With TLS 1.3 a client learns only after its side of the handshake that it is not let in.
    with pytest.raises((BrokerUnreachable, ConnectionClosed), match=r"it demands a certificate of its clients"):
        async with asking(settings, trusting(ours)) as session:
            await session.call(PULL)
    assert "peer did not return a certificate" in caplog.text


async def test_a_clients_certificate_of_another_authority_is_refused(
    folder: Path, server: Pair, ours: Pair, theirs: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    settings = showing(server, client_auth=ClientAuth.OPTIONAL, trust=ours.certificate)
    async with asking(settings, trusting(ours)) as session:
        await session.call(PULL)
    stranger = signed(folder, "strange client", theirs)
    with pytest.raises((BrokerUnreachable, ConnectionClosed), match=r"it does not trust our certificate"):
        async with asking(settings, trusting(ours, stranger)) as session:
            await session.call(PULL)
    assert "its certificate is refused: unable to get local issuer certificate (tls.server.trust" in caplog.text


async def test_a_client_of_a_server_without_tls_is_told_to_look_there(ours: Pair) -> None:
    with pytest.raises(BrokerUnreachable, match="if it does not speak TLS, connect without"):
        async with asking(ServerTlsSettings(tls_mode=TlsMode.DISABLED), trusting(ours)):
            pass


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"client_auth": ClientAuth.REQUIRE}, "need.client.auth=require needs tls.server.trustCertPath"),
        ({"client_auth": ClientAuth.OPTIONAL, "checks_client": False}, "lets everybody in who shows any"),
        ({"certificate": Path("/none.pem")}, r"tls\.server\.certPath = /none\.pem cannot be read \(No such"),
        ({"tls_mode": TlsMode.ENFORCING, "tls_test_mode": False}, "enforcing needs tls.server.certPath"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ServerTls(ServerTlsSettings(**settings), SystemClock())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "is_named"),
    [
        ({}, False),
        ({"checks_client": True}, True),
        ({"checks_client": True, "tls_mode": TlsMode.ENFORCING}, True),
        ({"checks_client": True, "tls_mode": TlsMode.DISABLED}, False),
        ({"checks_client": False}, False),
    ],
)
def test_checks_of_certificates_that_no_client_is_asked_for_are_named(settings: dict[str, Any], is_named: bool) -> None:
    assert bool(ServerTls(ServerTlsSettings(**settings), SystemClock()).admits_without_certificate) is is_named


def test_files_that_are_none_are_told_with_their_keys(server: Pair, client: Pair, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls\.server\.keyPath = .*client\.key cannot be used \(key values mism"):
        server_context(showing(Pair(server.certificate, client.key)))
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    with pytest.raises(ConfigError, match=r"tls\.client\.trustCertPath = .*nothing\.pem holds no certificate"):
        trusting(Pair(nothing, nothing))
    with pytest.raises(ConfigError, match=r"tls\.server\.keyPath = .*gone cannot be read"):
        server_context(showing(Pair(server.certificate, tmp_path / "gone")))


@pytest.mark.parametrize("gone", ["certificate", "key", "trust"])
def test_a_file_that_goes_while_it_is_loaded_is_told_as_any_other(
    server: Pair, ours: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    paths = {"certificate": server.certificate, "key": server.key, "trust": ours.certificate}
    monkeypatch.setattr("sparrowmq.remoting.tls.contexts._check_readable", lambda *_: None)  # it was there a moment ago
    with pytest.raises(ConfigError, match="No such file"):
        server_context(ServerTlsSettings(**(paths | {gone: tmp_path / "gone"})))  # type: ignore[arg-type]


async def test_a_key_may_have_a_password(server: Pair, ours: Pair) -> None:
    locked = encrypted(server, "pass word")
    async with asking(showing(locked, key_password="pass word"), trusting(ours)) as session:
        await session.call(PULL)
    for wrong in ("another", None):
        with pytest.raises(ConfigError, match=r"cannot be used \(.*tls\.server\.keyPassword its password"):
            server_context(showing(locked, key_password=wrong))


def copied(pair: Pair, to: Pair, moment: int) -> None:
    """Put a pair in the place of another, as of some moment."""
    for source, place in ((pair.certificate, to.certificate), (pair.key, to.key)):
        place.write_bytes(source.read_bytes())
        os.utime(place, (moment, moment))


def clock_of_looks() -> ManualClock:
    """Stands still until each look has ended, with what it loads: all of that happens in one thread, in turn."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))

    async def settle() -> None:
        for _ in range(3):  # what looks, what loads, and a last one
            await asyncio.to_thread(int)
            for _ in range(TURNS_AFTER_TIMER):
                await asyncio.sleep(0)

    return ManualClock(settle=settle)


async def test_changed_files_are_used_and_broken_ones_are_told_once(
    folder: Path, tmp_path: Path, ours: Pair, theirs: Pair, server: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock, used = clock_of_looks(), Pair(tmp_path / "c.pem", tmp_path / "k.pem")
    copied(server, used, 1_000)
    tls = ServerTls(showing(used), clock)
    first = tls.context
    watching = asyncio.create_task(tls.watch())
    pool = Pool(SystemClock(), tls=trusting(theirs))
    async with Server(answer, SystemClock(), "127.0.0.1", 0, tls=tls) as running:
        await clock.advance(3 * POLL_S)
        assert tls.context is first and not caplog.text

        used.key.write_text("not a key")
        await clock.advance(5 * POLL_S)
        assert tls.context is first and caplog.text.count("are not used, new connections get the old") == 1

        copied(signed(folder, "newer", theirs), used, 2_000)
        await clock.advance(2 * POLL_S)
        assert tls.context is not first
        assert "the TLS files have changed" in caplog.text
        await (await pool.session(f"127.0.0.1:{running.port}")).call(PULL)
        pool.close()
        await pool.wait_until_ended()
    watching.cancel()


async def test_files_that_are_just_being_replaced_are_left_alone(
    tmp_path: Path, server: Pair, client: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    clock, used = clock_of_looks(), Pair(tmp_path / "c.pem", tmp_path / "k.pem")
    copied(server, used, 1_000)
    tls = ServerTls(showing(used), clock)
    first = tls.context
    watching = asyncio.create_task(tls.watch())
    await clock.advance(POLL_S)
    used.certificate.write_bytes(client.certificate.read_bytes())  # and its key comes a moment later
    await clock.advance(POLL_S)
    copied(client, used, 2_000)
    await clock.advance(POLL_S)
    assert tls.context is first, "only a second look shows that they stay"
    await clock.advance(POLL_S)
    assert tls.context is not first and "not used" not in caplog.text
    watching.cancel()


async def test_files_that_cannot_be_read_are_told_once_and_tried_again(
    tmp_path: Path, server: Pair, client: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    clock, used = clock_of_looks(), Pair(tmp_path / "c.pem", tmp_path / "k.pem")
    copied(server, used, 1_000)
    tls = ServerTls(showing(used), clock)
    first = tls.context
    watching = asyncio.create_task(tls.watch())
    await clock.advance(POLL_S)
    copied(client, used, 2_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # which refuses root too
    try:
        await clock.advance(5 * POLL_S)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert tls.context is first and caplog.text.count("cannot be read (Too many open files)") == 1
    await clock.advance(POLL_S)
    assert tls.context is not first
    watching.cancel()


async def test_files_that_changed_in_place_and_kept_their_time_and_size_are_used(
    tmp_path: Path, server: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    clock, used = clock_of_looks(), Pair(tmp_path / "c.pem", tmp_path / "k.pem")
    copied(server, used, 1_000)
    tls = ServerTls(showing(used), clock)
    first = tls.context
    watching = asyncio.create_task(tls.watch())
    await clock.advance(POLL_S)
    copied(server, used, 1_000)
    await clock.advance(2 * POLL_S)
    assert tls.context is not first
    watching.cancel()


def test_one_clients_refusals_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    tls = ServerTls(ServerTlsSettings(), clock)
    for port in range(50):
        tls.log_refusal(f"10.0.0.1:{port}", "why")
    tls.log_refusal("10.0.0.2:1", "why")
    assert len(caplog.records) == 2
    clock._elapsed_s += LOG_AGAIN_S
    tls.log_refusal("10.0.0.1:1", "why")
    assert len(caplog.records) == 3


def test_no_client_asks_for_one_handshake_after_the_other(server: Pair) -> None:
    for context in (server_context(showing(server)), self_signed_context(ServerTlsSettings())):
        assert context.options & ssl.OP_NO_RENEGOTIATION
