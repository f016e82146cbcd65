"""A noun of the command line that has a verb of its own: `sparrowmq cluster` is `sparrowmq cluster show`."""

from __future__ import annotations

import click

from sparrowmq.cli.terminal.asking import HELP


class UsualVerb(click.Group):
    """A group of commands that passes options without a command to one of them.

    Attributes:
        verb: the name of that command.
    """

    verb = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in HELP["help_option_names"]):
            args = [self.verb, *args]
        return super().parse_args(ctx, args)
