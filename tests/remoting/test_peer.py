"""A session is a peer, and tells of itself what its latest request said."""

import asyncio

from sparrowmq.protocol import hosts
from sparrowmq.protocol.requests.headers import PullMessage, PullMessageReply
from sparrowmq.protocol.requests.request_table import Role
from sparrowmq.protocol.wire.command import PROTOCOL_VERSION
from sparrowmq.remoting.handler import handles
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.request_dispatch import Dispatcher
from sparrowmq.remoting.session import Session
from tests.remoting.conftest import Serve


def as_peer(session: Session) -> Peer:
    """What mypy agrees to."""
    return session


class Introduced:
    """Notes who asks."""

    def __init__(self) -> None:
        self.met: list[tuple[str, bytes, int, str]] = []

    @handles(PullMessage)
    def pull(self, header: PullMessage, body: bytes, peer: Peer) -> PullMessageReply:
        self.met.append((peer.address, peer.host, peer.version, peer.language))
        return PullMessageReply(0, 0, 0, 0)


async def test_a_handler_learns_who_asks(serve: Serve) -> None:
    handler = Introduced()
    async with serve(Dispatcher(Role.NOBODY, [handler], asyncio.ensure_future)) as (_, session):
        await session.call(PullMessage("g", "t", 1, 0, 32, 6, 0, 15000, 17))
        expected = (session.local_address, hosts.pack(session.local_address), PROTOCOL_VERSION, "PYTHON")
    assert handler.met == [expected]
