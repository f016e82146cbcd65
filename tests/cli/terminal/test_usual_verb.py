"""A noun with a verb of its own."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from sparrowmq.cli.terminal.usual_verb import UsualVerb


class Noun(UsualVerb):
    verb = "show"


@click.group(cls=Noun, context_settings={"help_option_names": ["-h", "--help"]})
def noun() -> None:
    """A noun."""


@noun.command()
@click.option("--all", "is_all", is_flag=True)
def show(is_all: bool) -> None:
    """Show it."""
    click.echo(f"shown {is_all}")


@noun.command()
def change() -> None:
    """Change it."""
    click.echo("changed")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([], "shown False"),
        (["--all"], "shown True"),
        (["show"], "shown False"),
        (["change"], "changed"),
        (["-h"], "Commands:"),
    ],
)
def test_options_without_a_verb_are_those_of_one_verb(line: list[str], said: str) -> None:
    assert said in CliRunner().invoke(noun, line).output
