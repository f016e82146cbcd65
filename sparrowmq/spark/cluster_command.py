"""Programs and pipelines on a cluster: `sparrowmq spark submit` and `sparrowmq spark pack`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, NoReturn

import click

from sparrowmq.core.exit_status import exit_status
from sparrowmq.errors import ConfigError
from sparrowmq.settings.path_type import PATH, WrittenPath
from sparrowmq.spark.cluster.environment import kept_in, pack, packed, to_be_packed
from sparrowmq.spark.cluster.submission import submission
from sparrowmq.spark.commands import shared

_PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
_ALSO = click.option("--with", "also", metavar="PACKAGE", multiple=True, help="Pack this too, with what it requires.")


@click.group("spark", context_settings=shared.HELP)
def spark() -> None:
    """Programs and ready pipelines on a Spark cluster whose machines do not have sparrowmq."""


@spark.command("submit", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--python", metavar="NAME", default=_PYTHON, show_default=True,
    help="Python for executors, of this version, on their machines.",
)  # fmt: skip
@_ALSO
@click.option(
    "--environment", metavar="PATH", type=WrittenPath(exists=True, dir_okay=False),
    help="Send this archive, which `sparrowmq spark pack` wrote, instead of packing.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the command, and do nothing.")
@click.argument("given", nargs=-1, type=click.UNPROCESSED)
def submit(given: tuple[str, ...], python: str, also: tuple[str, ...], environment: Path | None, dry_run: bool) -> None:
    """Run spark-submit with all that executors need: sparrowmq spark submit [OUR OPTIONS] [ITS OPTIONS] PROGRAM ...

    \b
    PROGRAM is a file of Python, or `pipeline NAME` with its arguments:
      sparrowmq spark submit --master spark://10.0.0.5:7077 count.py orders
      sparrowmq spark submit --master spark://10.0.0.5:7077 \\
          pipeline table orders -n 10.0.0.9:9876 --to /lake/orders --once
    """
    try:
        archive = to_be_packed if dry_run else packed
        path = environment or archive(kept_in(), also)
        found = submission(given, path.absolute(), python)
        if dry_run:
            click.echo(found.shown())
            if not path.exists():
                click.echo(f"{path} is not there yet; a run packs it", err=True)
        else:
            found.start()
    except (ConfigError, OSError) as error:
        _fail(error)


@spark.command("pack")
@click.argument("path", type=PATH)
@_ALSO
def pack_environment(path: Path, also: tuple[str, ...]) -> None:
    """Pack the environment of executors into PATH, a .zip: sparrowmq and the packages that it imports."""
    try:
        size = pack(path, also).stat().st_size
    except (ConfigError, OSError) as error:
        _fail(error)
    click.echo(f"{path}: {size >> 20} MiB; --archives {path.absolute()}#environment, PYTHONPATH=./environment")


def _fail(error: Exception) -> NoReturn:
    click.echo(f"{click.get_current_context().command_path}: {error}", err=True)
    sys.exit(exit_status(error))
