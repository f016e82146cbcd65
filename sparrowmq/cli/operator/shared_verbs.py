"""Commands and options that nouns of `sparrowmq` share: list names, and change one at every master."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

import click

from sparrowmq.cli.terminal import output
from sparrowmq.cli.terminal.asking import CLUSTER, F, look, options, verb
from sparrowmq.cli.terminal.name_completion import NameOf
from sparrowmq.client.admin.admin import Admin
from sparrowmq.settings.number_type import Number

AGAIN: Final = " with --exist-ok"
EXIST_OK: Final = click.option(
    "--exist-ok", is_flag=True, help="Also where brokers have it already, which get these settings."
)
AT_MOST: Final = click.option(
    "--wait",
    "limit_s",
    metavar="SECONDS",
    type=Number(min=0),
    default=3600.0,
    show_default=True,
    help="Stop after this time; the same command continues.",
)

Names = Callable[[Admin, str | None, bool], Coroutine[Any, Any, Iterable[str]]]


def add_list(noun: click.Group, hidden: str, names: Names) -> None:
    """Give a noun the command `list`.

    Args:
        hidden: the help of --all.
        names: asks for the names in a cluster or in all, with the hidden ones or without.
    """

    @verb(noun, "list", f"Print the names of all {noun.name}s, one on a line.")
    @CLUSTER
    @click.option("--all", "hidden", is_flag=True, help=hidden)
    def list_names(cluster: str | None, hidden: bool) -> None:
        output.names(look(lambda admin: names(admin, cluster, hidden)), noun.name or "")


def at_masters(kind: NameOf) -> Callable[[F], F]:
    """Give a command --cluster and NAME, which is of a kind."""
    return options(CLUSTER, click.argument("name", type=kind))


def refuse_no_change(given: Mapping[str, object]) -> None:
    """End a command without any change."""
    if all(value is None for key, value in given.items() if key != "cluster"):
        path = click.get_current_context().command_path
        raise click.UsageError(f"nothing is to be changed; `{path} -h` lists what can")


def tell(done: str, name: str, brokers: Iterable[str]) -> None:
    parent = click.get_current_context().parent
    assert parent is not None, "commands of a noun"
    noun, places = parent.command.name or "", list(brokers)
    output.done(f"{done} {noun} {name} at {', '.join(places)}", **{noun: name}, done=done, brokers=places)
