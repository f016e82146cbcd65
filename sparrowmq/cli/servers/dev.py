"""`sparrowmq dev`: a name server and a broker in one process, for trying things and for tests of any language.

    sparrowmq dev                                  127.0.0.1:9876 until Ctrl-C; the messages go with it
    sparrowmq dev --port 0 --topic orders --json   a free port, one line of JSON when it is ready: for scripts
    sparrowmq dev --store DIR                      the messages stay
    sparrowmq dev --console                        and a console in the browser (docs/operate/console.md)

It differs from a broker in production for convenience. It does not wait for the disk, its files are small, SQL filters
and traces are on, and it takes messages until 95 % of the disk is used.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import click

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.cli.servers.console import ONE_TIME_USER, one_time_account
from sparrowmq.cli.servers.serve import fail, log_on_stderr, run
from sparrowmq.cli.servers.settings_sources import SET_OPTION, merge, sources
from sparrowmq.client.client import connect
from sparrowmq.console.console_settings import PORT as CONSOLE_PORT
from sparrowmq.console.console_settings import ConsoleSettings
from sparrowmq.console.loading import console_of
from sparrowmq.errors import ConfigError, InvalidName
from sparrowmq.grpc import packages
from sparrowmq.loop.clock import SystemClock
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.names import check_new_topic
from sparrowmq.settings.argument_types import Whole
from sparrowmq.version import VERSION

UNLIKE_PRODUCTION: Final = {
    "brokerName": "dev",
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": "64m",
    "maxHashSlotNum": "100000",
    "maxIndexNum": "400000",
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "diskMaxUsedSpaceRatio": "95",
}
_PORT: Final = Whole(0, 65535)
NAMESRV_PORT: Final = 9876
GRPC_PORT: Final = 8081
_HOST: Final = "127.0.0.1"


@click.command("dev", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--port", type=_PORT, default=NAMESRV_PORT, show_default=True, help="Of the name server; 0: a free one.")
@click.option("--broker-port", type=_PORT, default=0, help="Of the broker; without it a free one.")
@click.option(
    "--grpc-port",
    type=_PORT,
    help="For clients of RocketMQ 5; without it 8081, or a free one beside another --port; 0: a free one.",
)
@click.option("--store", "folder", metavar="DIR", help="Keep the messages there; without it they go at the end.")
@click.option("--topic", "topics", metavar="NAME", multiple=True, help="A topic to make; may be repeated.")
@click.option("--console", "has_console", is_flag=True, help="Show it in the browser, too.")
@click.option("--console-port", type=_PORT, default=CONSOLE_PORT, show_default=True, help="0: a free one.")
@click.option("--json", "as_json", is_flag=True, help="Say that it is ready in one line of JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens, and not only what is wrong.")
@SET_OPTION
def dev(
    port: int,
    broker_port: int,
    topics: Sequence[str],
    as_json: bool,
    verbose: bool,
    changes: Sequence[str],
    **others: Any,
) -> None:
    """Run a name server and a broker on this machine, to try things with."""
    log_on_stderr(verbose)
    defaults = UNLIKE_PRODUCTION | {"listenPort": str(broker_port)} | _grpc(port, others["grpc_port"])
    try:
        settings = merge(BrokerSettings, [("sparrowmq dev", defaults), *sources(None, {}, changes, {})])
        names = [check_new_topic(name) for name in topics]
    except (ConfigError, InvalidName) as error:
        fail(error)
    folder = Path(others["folder"]).expanduser() if others["folder"] else None
    run(
        lambda: Dev(settings, port, folder, names, others["console_port"] if others["has_console"] else None),
        lambda server: server.as_json() if as_json else server.as_text(),
    )


def _grpc(port: int, grpc_port: int | None) -> dict[str, str]:
    """The setting of the gRPC port. Without --grpc-port, there is one only if the packages for it are installed."""
    if grpc_port is not None:
        return {"grpcServerPort": str(grpc_port)}
    if packages.missing_packages():
        return {}
    with socket.socket() as probe:
        is_free = port == NAMESRV_PORT and probe.connect_ex((_HOST, GRPC_PORT)) != 0
    return {"grpcServerPort": str(GRPC_PORT if is_free else 0)}


class Dev:
    """Both servers, while the context is entered; a store without a folder is deleted at the end.

    Raises on entering: ConfigError, an address cannot be had, or the console is not installed.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        port: int,
        folder: Path | None,
        topics: Sequence[str],
        console_port: int | None = None,
    ) -> None:
        self.namesrv = self.broker = self.console = self.grpc = ""
        self._console_port = console_port
        self._password = ""
        self._settings = settings
        self._port = port
        self._folder = folder
        self._topics = topics
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            folder = self._folder or Path(stack.enter_context(TemporaryDirectory(prefix="sparrowmq-dev-")))
            namesrv_settings = NamesrvSettings(port=self._port, kv_path=folder / "kvConfig.json")
            namesrv = await stack.enter_async_context(Namesrv(namesrv_settings, SystemClock()))
            self.namesrv = namesrv.address
            settings = replace(self._settings, namesrv=(self.namesrv,), store_path=folder / "store")
            broker = await stack.enter_async_context(Broker(settings))
            self.broker, self.grpc = broker.address, broker.grpc_address
            if self._topics:
                await self._create_topics()
            if self._console_port is not None:
                accounts, self._password = one_time_account()
                history = self._folder / "console" if self._folder is not None else None
                console = console_of(ConsoleSettings(accounts, self.namesrv, port=self._console_port, history=history))
                self.console = (await stack.enter_async_context(console)).url
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        return await self._stack.__aexit__(*error)  # type: ignore[arg-type]

    async def serve(self) -> None:
        """Never return; cancelled when a server fails, whose reason then leaves the context."""
        await asyncio.get_running_loop().create_future()

    def as_json(self) -> str:
        addresses: dict[str, object] = {"namesrv": self.namesrv, "broker": self.broker, "topics": list(self._topics)}
        if self.grpc:
            addresses["grpc"] = self.grpc
        if self.console:
            addresses |= {"console": self.console, "user": ONE_TIME_USER, "password": self._password}
        return json.dumps(addresses)

    def as_text(self) -> str:
        topic = self._topics[0] if self._topics else "orders"
        login = f"(user {ONE_TIME_USER}, password {self._password})"
        browser = f"  Browser  {self.console} {login}\n" if self.console else ""
        grpc = f'  5.x      ClientConfiguration("{self.grpc}", Credentials())\n' if self.grpc else ""
        storage = f"kept in {self._folder}" if self._folder else "gone at the end (--store DIR keeps them)"
        return f"""\
SparrowMQ {VERSION}: name server {self.namesrv}, broker {self.broker}; messages are {storage}. Ctrl-C stops it.

  shell    export NAMESRV_ADDR={self.namesrv}; sparrowmq topic list
  Python   async with sparrowmq.connect("{self.namesrv}") as mq: await mq.send("{topic}", b"hello")
  Java     producer.setNamesrvAddr("{self.namesrv}");
  Go       producer.WithNameServer([]string{{"{self.namesrv}"}})
  Node     new Producer({{ namesrvAddr: "{self.namesrv}", producerGroup: "p" }})
{grpc}  Spark    spark.read.format("rocketmq").option("nameServer", "{self.namesrv}").option("topic", "{topic}").load()
{browser}"""

    async def _create_topics(self) -> None:
        async with connect(self.namesrv) as mq:
            existing = set(await mq.admin.topics())
            for topic in self._topics:
                if topic not in existing:
                    await mq.admin.create_topic(topic)
