"""What the console's tests look at, as a program: two masters with access control, a slave, traffic, and the console.

It prints one line of JSON when all is there, and ends with its standard input. Every text that a client chooses has
markup in it: a browser that took one for HTML would set `document.title` to "broken".
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import sparrowmq
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.console.console_server import Console
from sparrowmq.console.console_settings import ConsoleSettings
from sparrowmq.console.users import Account, Accounts, Role, hash_password
from sparrowmq.protocol.messages.message import KeptTag
from sparrowmq.protocol.names import dlq_topic
from sparrowmq.testing import Cluster

KEYS = ("administrator", "secretOfAdmin")
DEAD = 1200  # letters of group many
PASSWORD = "a long password"
HA_SECRET = "a secret between two brokers"
HOSTILE = "<img/src=x/onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
ACCOUNTS = """
globalWhiteRemoteAddresses: [{white}]
accounts:
- {{accessKey: administrator, secretKey: secretOfAdmin, admin: true}}
- {{accessKey: onlyReader, secretKey: secretOfReader, defaultTopicPerm: SUB}}
"""


class Servers(Cluster):
    """broker-0 asks everybody who he is; broker-1 has a slave, which is known by its address."""

    def _broker_settings(self, name: str) -> BrokerSettings:
        white = "127.0.0.1" if name == "broker-1" else "10.9.8.7"
        file = self._path / f"{name}.yml"
        file.write_text(ACCOUNTS.format(white=white))
        plain = super()._broker_settings(name)
        return replace(plain, acl=True, acl_file=file, ha_secret=HA_SECRET if name == "broker-1" else None)

    def slave_settings(self) -> BrokerSettings:
        """Of broker-1's slave."""
        plain = super()._broker_settings("broker-1")
        return replace(
            plain,
            role=BrokerRole.SLAVE,
            broker_id=1,
            port=0,
            store_path=self._path / "slave",
            ha_secret=HA_SECRET,
        )


async def stage(folder: Path, stack: AsyncExitStack) -> dict[str, str]:
    """Start all of it; returns what a test wants to know."""
    servers = Servers(folder, 2, trace_topic_enabled=True, property_filter=True)
    await stack.enter_async_context(servers)
    await stack.enter_async_context(Broker(servers.slave_settings()))
    mq = await stack.enter_async_context(
        sparrowmq.connect(servers.namesrv, credentials=Credentials(*KEYS), trace=True, client_id=HOSTILE)
    )
    for topic in ("orders", "payments", "ticks", "spare"):
        await mq.admin.create_topic(topic, queues=2)
    for number in range(60):
        await mq.admin.create_topic(f"many-{number:02}", queues=1)
    for group in ("billing", "many"):
        await mq.admin.create_topic(dlq_topic(group), queues=1)
    for group in ("billing", "idle", "spare-group"):
        await mq.admin.create_group(group)
    msg_id = ""
    for number in range(20):
        body = json.dumps({"number": number, "amount": number * 1.5, "name": HOSTILE}).encode()
        sent = await mq.send(
            "orders", body, tag=KeptTag(HOSTILE) if number % 2 else "paid", keys=[f"order-{number}"],
            properties={"amount": str(number), "name": HOSTILE},
        )  # fmt: skip
        msg_id = sent.msg_id
    for body in (b"one", b"two", HOSTILE.encode()):
        await mq.send(dlq_topic("billing"), body, tag=KeptTag(HOSTILE))
    for tag, count in (("early", DEAD - 100), ("late", 100)):
        for number in range(count):
            mq.send_nowait(dlq_topic("many"), b"%d" % number, tag=tag)
        await mq.flush()
    await mq.send("payments", b"\x00\x01\xfe\xff", tag="binary")

    async def handle(message: object) -> None:
        await asyncio.sleep(0)

    await stack.enter_async_context(mq.subscribe("orders", handle, group="billing", start="earliest"))
    people = {"boss": Role.ADMIN, "olga": Role.OPERATE, "vera": Role.VIEW}
    kept = hash_password(PASSWORD)
    console = Console(
        ConsoleSettings(
            Accounts({name: Account(name, role, kept) for name, role in people.items()}),
            servers.namesrv,
            port=0,
        ),
        credentials=Credentials(*KEYS),
    )
    await stack.enter_async_context(console)
    ticks = asyncio.create_task(tick(mq))
    stack.callback(ticks.cancel)
    await mq.flush()
    return {"namesrv": servers.namesrv, "url": console.url, "msg_id": msg_id}


async def tick(mq: sparrowmq.Client) -> None:
    """Something that comes as one looks."""
    for number in range(1_000_000):
        properties = {"size": "big" if number % 2 else "small"}
        await mq.send("ticks", json.dumps({"tick": number, "odd": bool(number % 2)}).encode(), properties=properties)
        await asyncio.sleep(0.1)


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sparrowmq-stage-") as folder:
        async with AsyncExitStack() as stack:
            print(json.dumps(await stage(Path(folder), stack)), flush=True)
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
