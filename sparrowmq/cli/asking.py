"""What commands that ask a cluster share: where its name servers are, one event loop, errors, and tables.

stdout     what was asked for
stderr     what is wrong, in one sentence
exit       0 it is done; 1 a server failed or refused, or what was asked for is not there; 2 the command line is wrong
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

import click

from sparrowmq.client.admin.admin import TIMEOUT_S, Admin
from sparrowmq.errors import ConfigError, InvalidName, SparrowError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

HELP: Final = {"help_option_names": ["-h", "--help"]}
CLUSTER: Final = click.option("--cluster", metavar="NAME", help="Which cluster, if there are several.")
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
)


def asking(command: F) -> F:
    """Gives a command the options `namesrv` and `timeout_s`, which `ask` takes."""
    for option in reversed(_ASKING):
        command = option(command)
    return command


def ask(namesrv: str | None, timeout_s: float, question: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    """What a question to the cluster brings; ends the program with a sentence if it brings an error."""

    async def run() -> T:
        async with Admin(namesrv, timeout_s=timeout_s) as admin:
            return await question(admin)

    try:
        return asyncio.run(run())
    except SparrowError as error:
        click.echo(f"{click.get_current_context().command_path}: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError | InvalidName) else 1)


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
