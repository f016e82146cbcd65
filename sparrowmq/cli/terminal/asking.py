"""What commands that ask a cluster share: where its name servers are, one event loop, and errors.

stdout     what was asked for
stderr     what is wrong, in one sentence
exit       0 it is done; 1 a server failed or refused, or what was asked for is not there; 2 the command line is wrong
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from sparrowmq.cli.terminal.output import shown
from sparrowmq.client.admin.admin import TIMEOUT_S, Admin
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.errors import ConfigError, InvalidName, SparrowError
from sparrowmq.remoting.tls.tls_settings import SHARED_FILE

if TYPE_CHECKING:  # most commands only ask
    from sparrowmq.client.client import Client

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

HELP: Final = {"help_option_names": ["-h", "--help"]}
CLUSTER: Final = click.option("--cluster", metavar="NAME", help="Which cluster, if there are several.")


def _keep(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Keep an option for `ask`, so that not every command hands it on."""
    ctx.meta[f"sparrowmq.{param.name}"] = value


_ASKING: Final = (
    click.option(
        "-n",
        "--namesrv",
        metavar="ADDRESSES",
        help="Name servers: host:port;host:port. By default the environment's NAMESRV_ADDR.",
    ),
    click.option(
        "--timeout", "timeout_s", type=float, default=TIMEOUT_S, show_default=True, help="In seconds."
    ),
    click.option(
        "--access-key",
        metavar="KEY",
        envvar="ROCKETMQ_ACCESS_KEY",
        expose_value=False,
        callback=_keep,
        help="Sign as this account of brokers with access control; or ROCKETMQ_ACCESS_KEY.",
    ),
    click.option(
        "--secret-key",
        metavar="KEY",
        envvar="ROCKETMQ_SECRET_KEY",
        expose_value=False,
        callback=_keep,
        help="Its secret key; better in ROCKETMQ_SECRET_KEY, as others see command lines.",
    ),
    click.option(
        "--tls", is_flag=True, expose_value=False, callback=_keep, help="Encrypt; see also --tls-config."
    ),
    click.option(
        "--tls-config",
        metavar="FILE",
        envvar="SPARROWMQ_TLS_CONFIG",
        expose_value=False,
        callback=_keep,
        help=f"Encrypt as tls.client.* in this file say. Without it as {SHARED_FILE} says, if it is there.",
    ),
)


def showing_who(command: F) -> F:
    """Gives a command the options that `credentials_of` and `tls_of` look at."""
    for option in reversed(_ASKING[2:]):
        command = option(command)
    return command


def asking(command: F) -> F:
    """Gives a command the options `namesrv` and `timeout_s`, which `ask` takes."""
    for option in reversed(_ASKING):
        command = option(command)
    return command


def ask(namesrv: str | None, timeout_s: float, question: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    """What a question to the cluster brings; ends the program with a sentence if it brings an error."""

    async def run() -> T:
        async with Admin(namesrv, timeout_s=timeout_s, tls=tls_of(), credentials=credentials_of()) as admin:
            return await question(admin)

    return _run(run())


def connected(namesrv: str | None, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """What a client of the cluster brings that sends or reads; ends the program likewise."""
    from sparrowmq.client.client import Client

    async def run() -> T:
        async with Client(namesrv, tls=tls_of(), credentials=credentials_of()) as client:
            return await work(client)

    return _run(run())


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except SparrowError as error:
        click.echo(f"{click.get_current_context().command_path}: {shown(str(error))}", err=True)
        sys.exit(2 if isinstance(error, ConfigError | InvalidName) else 1)


def credentials_of() -> Credentials | None:
    """In whose name the options want requests signed. Raises: ConfigError, one of the two keys is missing."""
    meta = click.get_current_context().meta
    access_key, secret_key = [meta.get(f"sparrowmq.{name}") or "" for name in ("access_key", "secret_key")]
    if not access_key and not secret_key:
        return None
    return Credentials(access_key, secret_key)


def tls_of() -> bool | Path:
    """How the options want connections encrypted."""
    meta = click.get_current_context().meta
    if file := meta.get("sparrowmq.tls_config"):
        return Path(file)
    wanted = bool(meta.get("sparrowmq.tls"))
    return SHARED_FILE if wanted and SHARED_FILE.is_file() else wanted
