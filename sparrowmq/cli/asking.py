"""What commands that ask a cluster share: where its name servers are, one event loop, errors, and tables.

stdout     what was asked for
stderr     what is wrong, in one sentence
exit       0 it is done; 1 a server failed or refused, or what was asked for is not there; 2 the command line is wrong
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from sparrowmq.client.admin.admin import TIMEOUT_S, Admin
from sparrowmq.client.cluster.access import Credentials
from sparrowmq.errors import ConfigError, InvalidName, SparrowError
from sparrowmq.remoting.tls_settings import SHARED_FILE

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


def asking(command: F) -> F:
    """Gives a command the options `namesrv` and `timeout_s`, which `ask` takes."""
    for option in reversed(_ASKING):
        command = option(command)
    return command


def ask(namesrv: str | None, timeout_s: float, question: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    """What a question to the cluster brings; ends the program with a sentence if it brings an error."""

    async def run() -> T:
        async with Admin(namesrv, timeout_s=timeout_s, tls=_tls(), credentials=_credentials()) as admin:
            return await question(admin)

    try:
        return asyncio.run(run())
    except SparrowError as error:
        click.echo(f"{click.get_current_context().command_path}: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError | InvalidName) else 1)


def _credentials() -> Credentials | None:
    """In whose name the options want requests signed. Raises: ConfigError, one of the two keys is missing."""
    meta = click.get_current_context().meta
    access_key, secret_key = [meta.get(f"sparrowmq.{name}") or "" for name in ("access_key", "secret_key")]
    if not access_key and not secret_key:
        return None
    return Credentials(access_key, secret_key)


def _tls() -> bool | Path:
    """How the options want connections encrypted."""
    meta = click.get_current_context().meta
    if file := meta.get("sparrowmq.tls_config"):
        return Path(file)
    wanted = bool(meta.get("sparrowmq.tls"))
    return SHARED_FILE if wanted and SHARED_FILE.is_file() else wanted


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their heads, in columns two blanks apart; numbers end where their column ends."""
    rows = [list(row) for row in rows]
    texts = [list(heads), *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    numbers = [bool(rows) and all(isinstance(row[at], int) for row in rows) for at in range(len(heads))]
    for text in texts:
        cells = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(text, widths, numbers, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())
