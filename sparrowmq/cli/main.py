"""The command `sparrowmq` (short: `smq`): a table of subcommands, each loaded when it is called."""

from __future__ import annotations

import importlib
from typing import Any, Final

import click

from sparrowmq.version import VERSION

# Subcommand: where it is, and its line in the list. A list that imported them all would take a second.
COMMANDS: Final = {
    "dev": ("sparrowmq.cli.servers.dev:dev", "run a name server and a broker for as long as you try things"),
    "namesrv": ("sparrowmq.cli.servers.serve:namesrv", "run a name server"),
    "broker": ("sparrowmq.cli.broker:broker", "run a broker, or ask, change and drain those of a cluster"),
    "proxy": ("sparrowmq.cli.servers.proxy:proxy", "let clients of RocketMQ 5 use a cluster, by gRPC"),
    "topic": ("sparrowmq.cli.topic:topic", "create, change, delete and look at topics"),
    "group": ("sparrowmq.cli.group:group", "create, change, delete and look at consumer groups"),
    "connection": ("sparrowmq.cli.diagnostics:connection", "show the clients that are online"),
    "message": ("sparrowmq.cli.message:message", "send messages, look for them, copy and replay them"),
    "dlq": ("sparrowmq.cli.dlq:dlq", "look at dead letters, and let their groups try them again"),
    "cluster": ("sparrowmq.cli.cluster:cluster", "show masters, the lag of each slave, and messages per second"),
    "top": ("sparrowmq.cli.diagnostics:top", "show the busiest topics and the groups with the greatest lag, live"),
    "acl": ("sparrowmq.cli.acl:acl", "make, change, delete and look at accounts"),
    "user": ("sparrowmq.cli.user:user", "add, change, delete and look at users and their policies"),
    "context": ("sparrowmq.cli.context:context", "keep address and account of clusters under names"),
    "secure": ("sparrowmq.cli.secure:secure", "make certificates, accounts and settings of a closed cluster"),
    "doctor": ("sparrowmq.cli.diagnostics:doctor", "say what is wrong with a cluster, and how to fix it"),
    "bundle": ("sparrowmq.cli.diagnostics:bundle", "write logs, settings and stacks of all servers into a file"),
    "bench": ("sparrowmq.cli.bench:bench", "measure what a cluster takes, and how quickly"),
    "console": ("sparrowmq.cli.servers.console:console", "show a cluster in the browser"),
    "pipeline": (
        "sparrowmq.spark.commands.pipeline_commands:pipeline",
        "copy, query, archive and audit topics, with Spark",
    ),
    "lake": ("sparrowmq.spark.commands.lake_commands:lake", "keep many topics as tables, with Spark"),
    "spark": ("sparrowmq.spark.commands.spark_commands:spark", "run programs and pipelines on a Spark cluster"),
    "version": ("sparrowmq.cli.version:version", "show what runs here"),
    "store": ("sparrowmq.cli.store:store", "look into a message store, or check it"),
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            nearest = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            ctx.fail(f"there is no command {args[0]!r}{hint}; see `{ctx.command_path} --help`")
        return super().resolve_command(ctx, args)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="sparrowmq")
def main(**_: Any) -> None:
    """Message queue compatible with Apache RocketMQ."""
