"""Bodies that no consumer can decompress, sent as a hostile producer sends them."""

from __future__ import annotations

from sparrowmq.client.client import Client
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.requests.headers import SendMessageV2

DAMAGED = b"no zlib"


async def send_damaged(
    mq: Client, topic: str, body: bytes = DAMAGED, flags: int = SysFlag.COMPRESSED, **own: str
) -> None:
    """Send a body that its flags call compressed to the first queue of the topic's first broker."""
    servers = mq.admin.servers
    address = next(iter((await servers.masters_of(topic)).values()))
    assert address is not None
    text = properties.render(own)
    await servers.ask(address, SendMessageV2("hostile", topic, "TBW102", 1, 0, flags, 1, 0, text), body)
