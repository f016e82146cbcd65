from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.client.client import connect
from sparrowmq.client.cluster.credentials import Credentials, tls_context
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.errors import ConfigError, SendFailed, SparrowError
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.signature import SigningKey

# Self-signed, for 127.0.0.1 and a hundred years; the key guards nothing.
TLS = Path(__file__).parent / "tls"


@pytest.mark.parametrize("token", [5, b"token"])
def test_a_security_token_is_text(token):
    with pytest.raises(ConfigError, match="security_token"):
        Credentials("me", "my secret", security_token=token)


async def test_every_request_is_signed_in_the_name_of_the_user(peer):
    peer.has("t")
    credentials = Credentials("me", "my secret", security_token="token")
    async with connect(peer.address, credentials=credentials) as mq:
        await mq.send("t", b"hello", tag="paid")
        mq.send_nowait("t", b"one way")
    codes = {command.code for command in peer.received}
    assert codes >= {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.HEART_BEAT,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.UNREGISTER_CLIENT,
    }
    for command in peer.received:
        fields = command.ext_fields()
        assert (fields["AccessKey"], fields["SecurityToken"]) == ("me", "token")
        assert SigningKey("my secret").has_signed(fields, command.body) and not SigningKey("another").has_signed(
            fields, command.body
        )


async def test_an_operators_requests_are_signed_too(peer):
    async with Admin(peer.address, credentials=Credentials("me", "my secret")) as admin:
        with suppress(SparrowError):
            await admin.brokers()
    asked = [each for each in peer.received if each.code == RequestCode.GET_BROKER_CLUSTER_INFO]
    assert asked and all(SigningKey("my secret").has_signed(each.ext_fields(), each.body) for each in asked)


def test_a_secret_is_not_shown():
    assert repr(Credentials("me", "hush", "hush")) == "Credentials(access_key='me')"


@pytest.mark.parametrize("keys", [("", "s"), ("a", ""), (None, "s"), ("a", b"s")])
def test_keys_are_texts(keys):
    with pytest.raises(ConfigError, match="give that of the broker's account"):
        Credentials(*keys)


def test_what_tls_may_be():
    own = ssl.create_default_context()
    assert tls_context(False) is None and tls_context(own) is own
    trusting = tls_context(True)
    assert trusting is not None and trusting.verify_mode is ssl.CERT_REQUIRED and trusting.check_hostname
    with pytest.raises(ConfigError, match=r"cannot read the settings file"):
        tls_context(Path("/no/tls.properties"))
    with pytest.raises(ConfigError, match=r"give True, or an ssl\.SSLContext"):
        tls_context("yes")  # type: ignore[arg-type]


@asynccontextmanager
async def behind_tls(peer):
    """The peer behind a socket that speaks TLS; its routes lead there."""

    async def pipe(reader, writer):
        with closing(writer):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()

    async def serve(reader, writer):
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", peer._server.port)
        await asyncio.gather(pipe(reader, inner_writer), pipe(inner_reader, writer), return_exceptions=True)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        peer.has("t")
        peer.routes["t"].broker_datas[0].broker_addrs[0] = address
        yield address


async def test_name_servers_and_brokers_are_talked_to_by_tls(peer):
    trusting = ssl.create_default_context(cafile=str(TLS / "certificate.pem"))
    settings = ProducerSettings(compress_over_bytes=1 << 30)
    async with behind_tls(peer) as address, connect(address, tls=trusting, settings=settings) as mq:
        body = bytes(range(256)) * 4000
        results = await asyncio.gather(*[mq.send("t", body) for _ in range(20)])
    assert len(results) == 20 and len(peer.sent) == 20


async def test_whom_nobody_trusts_is_not_talked_to(peer):
    settings = ProducerSettings(timeout_s=0.3)
    async with behind_tls(peer) as address, connect(address, tls=True, settings=settings) as mq:
        with pytest.raises(SendFailed, match=r"cannot ask name server.*certificate is refused: self-signed"):
            await mq.send("t", b"x")
    assert not peer.received
