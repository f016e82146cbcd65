"""`sparrowmq version`: what runs here."""

from __future__ import annotations

import os
import sys

import click

from sparrowmq import kernel
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.cli.servers.serve import identity, storage_line
from sparrowmq.cli.servers.settings_sources import BROKER_VARIABLES, FILE_OPTION, SET_OPTION, merge, sources
from sparrowmq.cli.terminal.output import OUTPUT_OPTION, is_for_people, print_table
from sparrowmq.errors import ConfigError
from sparrowmq.settings import settings as config
from sparrowmq.version import VERSION


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@FILE_OPTION
@SET_OPTION
@OUTPUT_OPTION
def version(file: str | None, changes: tuple[str, ...]) -> None:
    """Show what runs here, and where and how safely a broker with these settings keeps messages."""
    environment = config.from_environment(BROKER_VARIABLES, os.environ)
    try:
        settings = merge(BrokerSettings, sources(file, environment, changes, {}))
    except ConfigError as error:
        click.echo(f"version: {error}", err=True)
        sys.exit(2)
    if is_for_people():
        click.echo(f"{identity()}\n{storage_line(settings)}")
        return
    python = ".".join(map(str, sys.version_info[:3]))
    row = VERSION, kernel.is_compiled(), python, str(settings.store_path), settings.flush.value
    print_table(("VERSION", "COMPILED", "PYTHON", "STORE", "FLUSH"), [row])
