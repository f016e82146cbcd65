"""The command `mqadmin`: Apache's admin tool, for our brokers and Apache's.

    mqadmin clusterList -n 127.0.0.1:9876

Options, tables, streams and words are those of Java's tool 4.9.8. So are the exit codes with --java-exit-codes (or
SPARROWMQ_JAVA_EXIT_CODES=1); without it a command that failed ends with 1, where Java's often ends with 0. Name
servers come from -n or NAMESRV_ADDR, the account from $ROCKETMQ_HOME/conf/tools.yml, TLS from the file that
SPARROWMQ_TLS_CONFIG names.
Source: MQAdminStartup and ServerUtil, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from sparrowmq.cli.mqadmin.java_options import WrongOptions, parse, usage
from sparrowmq.cli.mqadmin.subcommand_table import COMMANDS, Command, find
from sparrowmq.cli.scripts import is_text
from sparrowmq.cli.terminal.plain_terminal import plain

if TYPE_CHECKING:
    from sparrowmq.client.cluster.credentials import Credentials

JAVA_EXIT_CODES: Final = "--java-exit-codes"
TIMEOUT_S: Final = 5.0
ACCOUNT: Final = Path("conf") / "tools.yml"
# The exception around another one. Most are SubCommandExceptions, except these; None is no exception around it.
_WRAPPERS: Final[dict[str, str | None]] = {
    "sendMessage": "java.lang.RuntimeException: SendMessageCommand command failed",
    "queryCq": None,
}
_ENDINGS: Final = {
    "deleteExpiredCommitLog": " command execute failed.",
    "queryMsgTraceById": "command failed",
    "wipeWritePerm": "command failed",
    "addWritePerm": "command failed",
}


def main(prog_name: str = "mqadmin") -> None:
    try:
        code = run(sys.argv[1:], sys.stdout, sys.stderr)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def run(words: Sequence[str], out: TextIO, err: TextIO) -> int:
    """Run one command; returns the exit code."""
    out, err = plain(out), plain(err)
    as_java = JAVA_EXIT_CODES in words or os.environ.get("SPARROWMQ_JAVA_EXIT_CODES") == "1"
    words = [word for word in words if word != JAVA_EXIT_CODES]
    failure_code = 0 if as_java else 1
    if not words:
        rows = "".join(f"   {command.name:<20} {command.meaning}\n" for command in COMMANDS)
        out.write(f"The most commonly used mqadmin commands are:\n{rows}")
        out.write("\nSee 'mqadmin help <command>' for more information on a specific command.\n")
        return 0
    wants_help = words[0] == "help" and len(words) == 2
    if not wants_help and not all(map(is_text, words)):
        err.write("mqadmin: the command line is not UTF-8; write it so\n")
        return failure_code
    name = words[1] if wants_help else words[0]
    command = find(name)
    if command is None:
        out.write(f"The sub command {name} not exist.\n")
        return failure_code
    if wants_help:
        out.write(usage(f"mqadmin {command.name}", command.options))
        return 0
    try:
        options = parse(words[1:], command.options)
    except WrongOptions:
        out.write(usage(f"mqadmin {command.name}", command.options))
        return 1
    if "h" in options:
        out.write(usage(f"mqadmin {command.name}", command.options))
        return 0
    return failure_code if asyncio.run(_execute(command, options, out, err)) else 0


async def _execute(command: Command, options: dict[str, str], out: TextIO, err: TextIO) -> bool:
    from sparrowmq.admin.servers import Servers
    from sparrowmq.cli.mqadmin.call import Call
    from sparrowmq.cli.mqadmin.java import Failure, failure_from
    from sparrowmq.client.cluster.network import Network
    from sparrowmq.errors import ConfigError, SparrowError

    module, _, function = command.place.partition(":")
    subcommand = getattr(import_module(f"sparrowmq.cli.mqadmin.{module}"), function)
    try:
        tls = Path(file) if (file := os.environ.get("SPARROWMQ_TLS_CONFIG")) else False
        credentials = account()
        async with Network(options.get("n"), credentials=credentials, tls=tls) as network:
            call = Call(command, options, Servers(network, TIMEOUT_S), out, err, credentials, tls)
            try:
                await subcommand(call)
            except SparrowError as error:
                raise failure_from(error) from error
            except Failure as failure:
                call.name_silent(failure)
                raise
            call.name_silent()
            return call.failed
    except ConfigError as error:
        err.write(f"mqadmin: {error}\n")
    except Failure as failure:
        out.flush()
        err.write(_trace(command, failure))
    return True


def account() -> Credentials | None:
    """Return the account that signs requests, from $ROCKETMQ_HOME/conf/tools.yml; None without the file or its keys."""
    home = os.environ.get("ROCKETMQ_HOME")
    file = Path(home or ".") / ACCOUNT
    if not home or not file.is_file():
        return None
    import yaml

    from sparrowmq.client.cluster.credentials import Credentials
    from sparrowmq.errors import ConfigError
    from sparrowmq.settings.settings_files import read_text, value_of

    try:
        values = yaml.safe_load(read_text(file)) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    access_key, secret_key = (
        value_of(str(values.get(key) or "").strip(), f"{file}: {key}") for key in ("accessKey", "secretKey")
    )
    return Credentials(access_key, secret_key) if access_key and secret_key else None


def _trace(command: Command, failure: Exception) -> str:
    words = _ENDINGS.get(command.name, " command failed")
    default = f"org.apache.rocketmq.tools.command.SubCommandException: {command.java}{words}"
    wrapper = _WRAPPERS.get(command.name, default)
    return f"{failure}\n" if wrapper is None else f"{wrapper}\nCaused by: {failure}\n"
