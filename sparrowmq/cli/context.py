"""`sparrowmq context`: names for clusters, each with its address, account and TLS settings."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from sparrowmq.cli.terminal import contexts, output
from sparrowmq.cli.terminal.arguments import CONTEXT
from sparrowmq.cli.terminal.cluster_command import HELP, errors_in_a_sentence
from sparrowmq.cli.terminal.contexts import Context
from sparrowmq.cli.terminal.output import OUTPUT_OPTION, ask_secret
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.client.cluster.name_servers import addresses_of
from sparrowmq.errors import ConfigError
from sparrowmq.settings.argument_types import WrittenPath

_NAME_ARGUMENT = click.argument("name", type=CONTEXT)


@click.group(context_settings=HELP)
def context() -> None:
    """Keep address, account and TLS settings of clusters under names, and choose one."""


def _verb(name: str) -> Callable[[Callable[..., object]], click.Command]:
    def add(command: Callable[..., object]) -> click.Command:
        @wraps(command)
        def run(*args: Any, **options: Any) -> None:
            with errors_in_a_sentence(click.get_current_context().command_path):
                command(*args, **options)

        return context.command(name)(OUTPUT_OPTION(run))

    return add


@_verb("list")
def list_contexts() -> None:
    """Print all contexts, without secrets."""
    saved = contexts.load()
    rows = []
    for name, entry in sorted(saved.by_name.items()):
        tls = entry.tls_config or ("yes" if entry.tls else "no")
        rows.append(("yes" if name == saved.current else "no", name, entry.namesrv, entry.access_key, tls))
    output.print_table(("IN USE", "NAME", "NAME SERVERS", "ACCOUNT", "TLS"), rows)


@_verb("set")
@_NAME_ARGUMENT
@click.option("-n", "--namesrv", metavar="ADDRESSES", envvar="NAMESRV_ADDR", required=True, help="Name servers.")
@click.option("--access-key", metavar="KEY", envvar="ROCKETMQ_ACCESS_KEY", default="", help="The account.")
@click.option(
    "--secret-key",
    metavar="KEY",
    envvar="ROCKETMQ_SECRET_KEY",
    default="",
    help="Its secret key; - asks for it without showing it.",
)
@click.option("--tls", is_flag=True, help="Encrypt connections.")
@click.option(
    "--tls-config",
    metavar="FILE",
    envvar="SPARROWMQ_TLS_CONFIG",
    type=WrittenPath(exists=True, dir_okay=False),
    help="Encrypt as tls.client.* in this file say.",
)
def set_context(name: str, namesrv: str, access_key: str, secret_key: str, tls: bool, tls_config: Path | None) -> None:
    """Note the context NAME, and replace an earlier one of that name.

    What is not given comes from the environment, as with other commands. The first context is in use at once.
    """
    if secret_key == "-":
        secret_key = ask_secret(
            f"the secret key of {access_key}", "give it in the variable ROCKETMQ_SECRET_KEY", twice=False
        )
    addresses_of(namesrv)
    if access_key or secret_key:
        Credentials(access_key, secret_key)
    file = str(tls_config.resolve()) if tls_config is not None else ""
    saved = contexts.load()
    saved.by_name[name] = Context(namesrv, access_key, secret_key, tls, file)
    saved.current = saved.current or name
    contexts.save(saved)
    account = f" as {access_key}" if access_key else ""
    output.print_done(
        f"context {name} is {namesrv}{account}, in {contexts.contexts_file()}", context=name, namesrv=namesrv
    )


@_verb("use")
@_NAME_ARGUMENT
def use(name: str) -> None:
    """Let commands use the context NAME when they name no other one, and no address."""
    saved = contexts.load()
    namesrv = saved.named(name).namesrv
    saved.current = name
    contexts.save(saved)
    output.print_done(f"commands use context {name}, {namesrv}", context=name, namesrv=namesrv)


@_verb("delete")
@_NAME_ARGUMENT
def delete(name: str) -> None:
    """Forget the context NAME."""
    saved = contexts.load()
    saved.named(name)
    del saved.by_name[name]
    if saved.current == name:
        saved.current = ""
    contexts.save(saved)
    output.print_done(f"context {name} is forgotten", context=name)


@_verb("env")
@click.argument("name", type=CONTEXT, required=False)
def env(name: str | None) -> None:
    """Print the context NAME, or the one in use, as lines for a shell, with its secret.

    For programs that do not know contexts: eval "$(sparrowmq context env prod)"
    """
    saved = contexts.load()
    if not (name or saved.current):
        raise ConfigError("no context is in use; name one, as `sparrowmq context list` shows them")
    entry = saved.named(name or saved.current)
    variables = {
        "NAMESRV_ADDR": entry.namesrv,
        "ROCKETMQ_ACCESS_KEY": entry.access_key,
        "ROCKETMQ_SECRET_KEY": entry.secret_key,
        "SPARROWMQ_TLS_CONFIG": entry.tls_config,
    }
    for key, value in variables.items():
        click.echo(f"export {key}={shlex.quote(value)}" if value else f"unset {key}")
