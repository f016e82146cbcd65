"""Run a server in the foreground: `mqnamesrv`, `mqbroker`, also called `sparrowmq namesrv` and `sparrowmq broker`.

settings   built in < file (-c) < environment (NAMESRV_ADDR, RMQ_BROKER_listenPort) < key=value, -n, --insecure
SIGHUP     read all of them again, and apply what can change while the server runs
stdout     one line when it serves, with the words that scripts wait for from Apache's servers
stderr     the log, unless --log-file names a file, and errors
systemd    that it serves, runs and stops, in a unit with Type=notify (systemd.py)
exit       0 stopped by SIGTERM or SIGINT; 1 it failed; 2 the command line, the settings or the address are wrong
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Protocol, TypeVar

import click

from sparrowmq import kernel
from sparrowmq.cli.servers import hangup
from sparrowmq.cli.servers.settings_sources import (
    BROKER_VARIABLES,
    DEFAULT_GRPC_PORT,
    FILE_OPTION,
    SET_OPTION,
    merge,
    sources,
)
from sparrowmq.cli.servers.systemd import Notifier
from sparrowmq.core import descriptors, logs, process
from sparrowmq.core.exit_status import exit_status
from sparrowmq.core.logs import LogSettings
from sparrowmq.core.process import RESTART
from sparrowmq.core.safe_text import error_sentence
from sparrowmq.errors import ConfigError, SparrowError, StoreFailed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.tasks import loop_factory
from sparrowmq.settings import settings as config
from sparrowmq.settings.argument_types import Whole
from sparrowmq.settings.setting_kinds import size
from sparrowmq.version import VERSION

if TYPE_CHECKING:  # each command loads its own server alone
    from sparrowmq.broker.broker import Broker
    from sparrowmq.broker.broker_settings import BrokerSettings
    from sparrowmq.broker.member import Member


log = logging.getLogger(__name__)

S = TypeVar("S", bound=LogSettings)
V = TypeVar("V", bound="Server")

# What `-m` prints.
IMPORTANT_KEYS: Final = [
    "brokerClusterName",
    "brokerName",
    "brokerId",
    "brokerRole",
    "listenPort",
    "bindAddress",
    "brokerIP1",
    "namesrvAddr",
    "insecure",
    "aclEnable",
    "flushDiskType",
    "storePathRootDir",
    "fileReservedTime",
    "autoCreateTopicEnable",
    "kvConfigPath",
]

PLAIN_KERNEL: Final = "plain (a C compiler and Python's headers were missing when it was installed)"

# Environment variables that Apache's scripts set, and the keys that they stand for.
_HOME_VARIABLE: Final = {"ROCKETMQ_HOME": "rocketmqHome"}
_APACHE_VARIABLES: Final = {"NAMESRV_ADDR": "namesrvAddr", **_HOME_VARIABLE}


class Server(Protocol):
    async def serve(self) -> None:
        """Return only if another server has to start instead of this one; raise what made it fail."""


# The commands -------------------------------------------------------------------------------------------------------

LOG_SIZE: Final = size(1 << 10, 1 << 40)
LOG_OPTIONS: Final = [
    click.option("--log-file", metavar="FILE", help="Log to this file, not to stderr; to rotate it, rename it."),
    click.option("--log-size", metavar="SIZE", help="Begin another file at this size, as in 100m."),
    click.option("--log-keep", type=Whole(1), default=5, show_default=True, help="So many files before it stay."),
    click.option(
        "--log-format",
        type=click.Choice([form.value for form in logs.Form]),
        default="text",
        show_default=True,
        help="json: each line an object.",
    ),
]
_OPTIONS: Final = [
    FILE_OPTION,
    click.option("-n", "--namesrv", "--namesrvAddr", metavar="ADDRESSES", help="Name servers: host:port;host:port."),
    SET_OPTION,
    click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]..."),
    click.option("--insecure", is_flag=True, help="Listen where others reach us, without access control."),
    click.option("-p", "--print", "--printConfigItem", "show_all", is_flag=True, help="Print all settings and stop."),
    click.option(
        *("-m", "--print-important", "--printImportantConfig", "show"),
        is_flag=True,
        help="Print the important settings and stop.",
    ),
    *LOG_OPTIONS,
    click.option("-v", "--verbose", is_flag=True, help="Log more: logLevel=DEBUG."),
    click.version_option(VERSION, prog_name="sparrowmq"),
]


def _command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    def bind(function: Callable[..., None]) -> click.Command:
        for option in reversed(_OPTIONS):
            function = option(function)
        return click.command(name, context_settings={"help_option_names": ["-h", "--help"]})(function)

    return bind


@_command("namesrv")
def namesrv(**options: Any) -> None:
    """Run a name server: clients ask it which brokers have a topic."""
    hangup.remember()
    from sparrowmq.namesrv.namesrv import Namesrv
    from sparrowmq.namesrv.namesrv_settings import NamesrvSettings

    options["namesrv"] = None  # Apache's script takes -n too, and has no use for it either.
    settings = _settings(NamesrvSettings, options, "RMQ_NAMESRV_", _HOME_VARIABLE)
    log.info("%s", identity())
    run(
        lambda: Namesrv(settings, SystemClock(), _file(options)),
        lambda server: f"The Name Server boot success. serializeType=JSON, address {server.address}",
        lambda server: server.reload(_merged(NamesrvSettings, options, "RMQ_NAMESRV_", _HOME_VARIABLE)),
        unready=lambda server: server.unready(),
    )


@_command("broker")
@click.option(
    "--brokers",
    type=Whole(1, 64),
    default=1,
    help="So many of them as one service, of which each uses a processor: NAME-0, NAME-1 and so on.",
)
@click.option("--enable-proxy", is_flag=True, help="Open a gRPC port for clients of RocketMQ 5, by default 8081.")
@click.option(
    *("-pc", "--proxyConfigPath", "proxy_file"),
    metavar="FILE",
    help="Settings of the gRPC port: Apache's rmq-proxy.json.",
)
@click.option("--ends-with-stdin", is_flag=True, hidden=True, help="Stop when the other end of stdin is closed.")
def broker(**options: Any) -> None:
    """Run a broker: it keeps messages and gives them to consumers."""
    hangup.remember()
    from sparrowmq.broker.broker import Broker
    from sparrowmq.broker.broker_settings import BrokerSettings

    if options["proxy_file"] and not options["enable_proxy"]:
        fail(ConfigError("-pc configures the gRPC port; add --enable-proxy, which opens it"))
    settings = _settings(BrokerSettings, options, BROKER_VARIABLES, _APACHE_VARIABLES)
    if options["brokers"] > 1:
        from sparrowmq.cli.servers.broker_processes import BrokerProcesses, broker_command

        numbers = range(options["brokers"])
        commands = [broker_command(settings, options, number) for number in numbers]
        stores = [f"{settings.store_path}-{number}" for number in numbers]
        sys.exit(BrokerProcesses(commands, stores=stores, notifier=Notifier.from_environment(os.environ)).run())
    log.info("%s, %s", identity(), storage_line(settings))
    name_servers = f" and name server is {';'.join(settings.namesrv)}" if settings.namesrv else ""

    def ready(server: Broker | Member) -> str:
        running = server if isinstance(server, Broker) else server.broker
        grpc = f", gRPC at {running.grpc_address}" if running is not None and running.grpc_address else ""
        return f"The broker[{settings.name}, {server.address}] boot success. serializeType=JSON{name_servers}{grpc}"

    def reload(server: Broker | Member) -> None:
        server.reload(_merged(BrokerSettings, options, BROKER_VARIABLES, _APACHE_VARIABLES))

    def unready(server: Broker | Member) -> str:
        running = server if isinstance(server, Broker) else server.broker
        return running.unready() if running is not None else "no broker runs; the log says why"

    RESTART.check = partial(_merged, BrokerSettings, options, BROKER_VARIABLES, _APACHE_VARIABLES)
    ends = options["ends_with_stdin"]
    if settings.failover:
        from sparrowmq.broker.member import Member

        run(lambda: Member(settings, SystemClock(), _file(options)), ready, reload, ends, unready=unready)
    run(lambda: Broker(settings, SystemClock(), _file(options)), ready, reload, ends, unready=unready)


# Settings -----------------------------------------------------------------------------------------------------------


def _settings(cls: type[S], options: Mapping[str, Any], prefix: str, variables: Mapping[str, str] | None = None) -> S:
    """Return the settings of a command line; ends the program when they are only to be printed, or wrong.

    `prefix` is that of environment variables with the names of keys; `variables` has other ones, each with its key. In
    Java a file overrules these.
    """
    try:
        size_bytes = LOG_SIZE.parse(options["log_size"]) if options["log_size"] else None
        logs.begin(options["log_file"], logs.Form(options["log_format"]), size_bytes, options["log_keep"])
    except ValueError:
        fail(ConfigError(f"--log-size {options['log_size']}: must be {LOG_SIZE.allowed}"))
    except OSError as error:
        fail(ConfigError(f"--log-file {options['log_file']} cannot be written ({error.strerror})"))
    try:
        settings = _merged(cls, options, prefix, variables)
    except ConfigError as error:
        fail(error)
    if options["show_all"] or options["show"]:
        properties = settings.as_properties()
        keys = sorted(properties) if options["show_all"] else [key for key in IMPORTANT_KEYS if key in properties]
        for key in keys:
            click.echo(f"{key}={properties[key]}")
        sys.exit(0)
    logs.apply_settings(settings)
    return settings


def _merged(cls: type[S], options: Mapping[str, Any], prefix: str, variables: Mapping[str, str] | None = None) -> S:
    """Return the settings of all sources. Raises: ConfigError."""
    weak = [(name, {key: os.environ[name]}) for name, key in (variables or {}).items() if os.environ.get(name)]
    if options.get("enable_proxy"):
        weak.append(("--enable-proxy", {"grpcServerPort": DEFAULT_GRPC_PORT}))
    environment = config.from_environment(prefix, os.environ)
    typed = {"insecure": "true"} if options["insecure"] else {}
    if options["namesrv"] is not None:
        typed["namesrvAddr"] = options["namesrv"]
    if options["verbose"]:
        typed["logLevel"] = "DEBUG"
    changes = (*options["changes"], *options["pairs"])
    return merge(cls, [*weak, *sources(options["file"], environment, changes, typed, options.get("proxy_file"))])


def _file(options: Mapping[str, Any]) -> Path | None:
    return Path(options["file"]).expanduser() if options["file"] else None


# Running ------------------------------------------------------------------------------------------------------------


def run(
    build: Callable[[], AbstractAsyncContextManager[V]],
    ready: Callable[[V], str],
    reload: Callable[[V], object] | None = None,
    ends_with_stdin: bool = False,
    *,
    unready: Callable[[V], str] = lambda _: "",
) -> NoReturn:
    """Serve until a signal or a failure, or the end of stdin; SIGHUP calls `reload`, an earlier one too.

    `unready` returns what keeps the server from its work, for `systemctl status`; "" if nothing does.
    """
    os.umask(0o077)  # Only this user may read messages.
    descriptors.raise_limit()
    # What the index maps can be cut off, or lie on a bad sector: then the process dies, but not in silence.
    with suppress(OSError):  # where stderr is no file
        faulthandler.enable()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            starting = _Starting(ready, reload, unready, Notifier.from_environment(os.environ))
            runner.run(_serve(build, starting, ends_with_stdin))
    except (SparrowError, OSError, ExceptionGroup) as error:
        if not RESTART.is_requested:
            fail(error)
        log.error("%s", error)  # a failed store opens again
    if RESTART.is_requested:
        RESTART.begin()
    sys.exit(0)


@dataclass(frozen=True)
class _Starting(Generic[V]):
    """The things to do once a server serves. The fields are arguments of `run`."""

    ready: Callable[[V], str]
    reload: Callable[[V], object] | None
    unready: Callable[[V], str]
    notifier: Notifier

    def on_serving(self, server: V) -> None:
        """Say that it serves, and read its settings again from now on."""

        def reload() -> None:
            try:
                if self.reload is not None:
                    self.reload(server)
            except ConfigError as error:
                log.error("the settings stay as they are: %s", error)

        def status() -> str:
            problem = self.unready(server)
            return f"not ready: {problem}" if problem else "serves"

        if self.reload is not None:
            hangup.follow(reload)
        click.echo(self.ready(server))
        sys.stdout.flush()
        self.notifier.report_serving(status)


async def _serve(
    build: Callable[[], AbstractAsyncContextManager[V]], starting: _Starting[V], ends_with_stdin: bool
) -> None:
    """Signals cancel this task at any point; leaving the context is the graceful stop."""
    task = asyncio.current_task()
    assert task is not None

    def stop() -> None:
        starting.notifier.report_stopping()
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    RESTART.stop = task.cancel  # without a message to systemd: the process goes on
    if ends_with_stdin:
        _follow_stdin(stop)
    if starting.reload is None:
        hangup.follow_none(stop)
    try:
        while await _serve_once(build(), starting):
            pass
    except asyncio.CancelledError:
        log.info("stopped")
    finally:
        RESTART.stop = None  # where a test or a program called the command


async def _serve_once(server: AbstractAsyncContextManager[V], starting: _Starting[V]) -> bool:
    """Serve until a signal or a failure; return whether to start another server instead of this one."""
    starts_again = False
    try:
        async with server as serving:
            _tune_garbage_collection()
            process.keep_freed_memory()
            starting.on_serving(serving)
            try:
                await serving.serve()
                starts_again = True
            finally:
                starting.notifier.keep_status()
    except (StoreFailed, ExceptionGroup):
        if not starts_again:  # else it has no more to say than before
            raise
    return starts_again


def _follow_stdin(stop: Callable[[], object]) -> None:
    """Call `stop` when the process at the other end of stdin has ended."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            log.warning("the parent process has ended, so this process stops, too")
            stop()

    loop.add_reader(0, read)


def _tune_garbage_collection() -> None:
    """Collect cyclic garbage seldom, and not among the objects of the start.

    A message's objects die by reference counting. Looking for cycles among them took a twentieth of a busy broker's
    time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def identity() -> str:
    form = "compiled" if kernel.is_compiled() else PLAIN_KERNEL
    return f"sparrowmq {VERSION}, kernel {form}, Python {'.'.join(map(str, sys.version_info[:3]))}"


def storage_line(settings: BrokerSettings) -> str:
    """Return where a broker stores messages, and what a send waits for."""
    return f"store {settings.store_path}, {settings.flush.value}"


def log_on_stderr(verbose: bool) -> None:
    """Log what is wrong, or with `verbose` also what happens. Name servers and brokers have settings for it."""
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")


def fail(error: BaseException) -> NoReturn:
    """End with one sentence for an expected error, with the traceback for any other."""
    cause = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if not isinstance(cause, SparrowError | OSError):
        raise error
    context = click.get_current_context()
    name = context.info_name if context.parent is None else context.command.name  # and not `run`
    click.echo(f"{name}: {error_sentence(cause)}", err=True)
    sys.exit(exit_status(cause))
