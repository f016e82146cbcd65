"""Shared by the commands of Spark: options, errors, and the last line.

stdout     results, and at the end one line of JSON: read, written, errors, seconds, offsets
stderr     progress, and errors in one sentence

                          exit            the line has
    it is done            0               what was done
    an audit found it     1               `errors`
    it failed             1               `error`, and what had been done until then
    wrong command line    2               no line
    brokers were away     3               `away`
    a signal stopped it   128 + signal    `stopped`: true

SIGTERM (systemd, Kubernetes) works as Control-C does. A stream without an end ends in order by both, and with 0.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import click

from sparrowmq.core.exit_status import INCOMPLETE
from sparrowmq.core.safe_text import error_sentence
from sparrowmq.errors import ConfigError, SparrowError
from sparrowmq.settings.argument_types import PATH, WrittenPath
from sparrowmq.spark.failures import known_failure

F = TypeVar("F", bound=Callable[..., object])

# As the other commands name them; what is on a command line, others on the machine see.
_ACCOUNT: Final = {"accessKey": "ROCKETMQ_ACCESS_KEY", "secretKey": "ROCKETMQ_SECRET_KEY"}
_TARGET_ACCOUNT: Final = {"accessKey": "ROCKETMQ_TARGET_ACCESS_KEY", "secretKey": "ROCKETMQ_TARGET_SECRET_KEY"}
_ACCOUNT_HELP: Final = "the account's keys also as ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY"
_TARGET_ACCOUNT_HELP: Final = "the account's keys also as ROCKETMQ_TARGET_ACCESS_KEY, ROCKETMQ_TARGET_SECRET_KEY"

_JAVA_EXIT_LIMIT_S: Final = 1.0  # from the end of its sockets to that of the process
HELP: Final = {"help_option_names": ["-h", "--help"]}
SERVERS: Final = "host:port;host:port; or NAMESRV_ADDR."


def servers(*, required: bool = True) -> Callable[[F], F]:
    """Gives a command the option `name_server`."""
    return click.option(
        "-n", "--namesrv", "name_server", metavar="ADDRESSES", envvar="NAMESRV_ADDR", required=required,
        help=f"Name servers: {SERVERS}"
    )  # fmt: skip


def parse_pairs(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`KEY=VALUE` of each. Raises: UsageError."""
    options = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{text!r} is not an option with its value; write KEY=VALUE, as in -o tags=paid")
        options[key] = value
    return options


def _parse_pairs_file(_context: click.Context, _option: click.Parameter, file: Path | None) -> dict[str, str]:
    """The lines KEY=VALUE of a file; a line with # at its begin is a comment. Raises: UsageError."""
    if file is None:
        return {}
    options = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} cannot be read: {error}") from None
    for number, line in enumerate(map(str.strip, lines), 1):
        key, equals, value = line.partition("=")
        if line and not line.startswith("#"):
            if not equals or not key.strip():  # the line may be a secret, so it is not shown
                raise click.UsageError(f"{file}, line {number}, is not an option with its value; write KEY=VALUE")
            options[key.strip()] = value.strip()
    return options


def _checks_source_options(parse: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
    """`parse`, for options that the source understands. Raises: UsageError."""

    def checked(context: click.Context, option: click.Parameter, value: Any) -> dict[str, str]:
        from sparrowmq.spark.options import check_reading

        options = parse(context, option, value)
        try:
            check_reading(options)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        return options

    return checked


def _pairs_option(
    names: tuple[str, ...],
    help: str,
    check: Callable[[Callable[..., dict[str, str]]], Callable[..., dict[str, str]]] = lambda parse: parse,
) -> Callable[[F], F]:
    name = next(option_name for option_name in names if option_name.startswith("--"))
    file_option = click.option(
        f"{name}-file", metavar="FILE", callback=check(_parse_pairs_file),
        type=WrittenPath(exists=True, dir_okay=False),
        help=f"File with lines KEY=VALUE for {name}; keep secrets in it, as others see command lines."
    )  # fmt: skip
    line_option = click.option(*names, multiple=True, metavar="KEY=VALUE", callback=check(parse_pairs), help=help)
    return lambda command: line_option(file_option(command))


_OPTION_FLAGS: Final = ("-o", "--option", "options")
_SINK_OPTION_HELP: Final = "An option of the sink (docs/use/spark.md), as sendTimeoutMs=...;"
source_options = _pairs_option(
    _OPTION_FLAGS, f"An option of the source (docs/use/spark.md), as tags=...; {_ACCOUNT_HELP}.", _checks_source_options
)
sink_options = _pairs_option(_OPTION_FLAGS, f"{_SINK_OPTION_HELP} {_ACCOUNT_HELP}.")
target_options = _pairs_option(("--to-option", "to_options"), f"{_SINK_OPTION_HELP} {_TARGET_ACCOUNT_HELP}.")


dry_run = click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
once = click.option("--once", is_flag=True, help="End when all messages that are there now are done.")
every = click.option("--every", default="10 seconds", show_default=True, help="Time between looks for new messages.")


_STATE: Final = "Folder of the progress; needed if the table is at an address, such as s3://bucket/orders."
state = click.option("--state", metavar="PATH", type=PATH, help=_STATE)
catalog_options = click.option(
    "--catalog-option", "catalog_options", multiple=True, metavar="KEY=VALUE", callback=parse_pairs,
    help="A property of the catalog, as uri=...; keys are safer in pyiceberg's file, or in variables."
)  # fmt: skip


def metrics(command: F) -> F:
    """Gives a command the options `metrics` and `insecure`."""
    address = click.option(
        "--metrics", metavar="ADDRESS", help="Serve figures for Prometheus at host:port (docs/operate/metrics.md)."
    )
    return address(
        click.option("--insecure", is_flag=True, help="Other machines may reach the address of --metrics.")(command)
    )


def table_options(command: F) -> F:
    """Gives a command the options `state` and `catalog_options` of a table that was begun."""
    return state(catalog_options(command))


def catalog_table_options(command: F) -> F:
    """Gives a command the options of `catalog_from`, and `state`."""
    name = click.option("--catalog", metavar="NAME", help="Iceberg catalog, named as in pyiceberg's configuration.")
    table = click.option("--table", "known_as", metavar="NAMESPACE.TABLE", help="The table's name in the catalog.")
    return state(name(table(catalog_options(command))))


def catalog_from(arguments: dict[str, Any]) -> Any:
    """Take the options of a catalog out of those given; None without any. Raises: ConfigError."""
    name, known_as, options = arguments.pop("catalog"), arguments.pop("known_as"), arguments.pop("catalog_options")
    if name is None and known_as is None and not options:
        return None
    if known_as is None:
        raise ConfigError("a table in a catalog needs a name there; write --table NAMESPACE.TABLE")
    return pipelines().Catalog(name or "default", known_as, options)


def pipelines() -> Any:
    """The functions of pipelines; exits if Spark is not installed."""
    try:
        from sparrowmq.spark import pipelines
    except ImportError as error:
        sys.exit(f"sparrowmq pipeline: {error.name} is missing; pip install 'sparrowmq[server,lake]'")
    return pipelines


class Outcome(NamedTuple):
    """The report of a command, and its exit status unless it was stopped."""

    report: Any
    status: int


class CommandEnd:
    def __init__(self) -> None:
        self._begin_s = time.monotonic()
        self._signal = signal.SIGINT

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Treat SIGTERM as Control-C meanwhile. Errors of Spark's bridge to Java, which both break, are not logged."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        log = logging.getLogger()
        previous_handler = signal.signal(signal.SIGTERM, self._terminate)
        log.addFilter(_hide_broken_bridge)
        try:
            yield
        finally:
            log.removeFilter(_hide_broken_bridge)
            signal.signal(signal.SIGTERM, previous_handler or signal.SIG_DFL)

    def _terminate(self, _number: int, _frame: FrameType | None) -> NoReturn:
        self._signal = signal.SIGTERM
        raise KeyboardInterrupt

    def finish(self, outcome: Outcome) -> None:
        """Print its line, and exit with its status, or with that of the signal that stopped it."""
        click.echo(outcome.report.line())
        status = 128 + self._signal if outcome.report.stopped else outcome.status
        if status:
            sys.exit(status)

    def exit_stopped(self) -> NoReturn:
        """Exit after a signal for which no pipeline was prepared."""
        self.print_line(None)
        sys.exit(128 + self._signal)

    def fail(self, reason: str) -> NoReturn:
        self.print_line(reason)
        click.echo(f"sparrowmq pipeline: {reason}", err=True)
        sys.exit(1)

    def print_line(self, error: str | None) -> None:
        """Print the line of a command that fails, or that a signal stopped (`error` is None)."""
        loaded = sys.modules.get("sparrowmq.spark.pipelines.running.report")
        if loaded is None:  # there is no Spark to begin anything with
            return
        report = loaded.latest_since(self._begin_s)
        report.error, report.stopped = error, error is None
        report.seconds = report.seconds or time.monotonic() - self._begin_s
        with suppress(OSError):  # the reader of stdout may be gone
            click.echo(report.line())


def is_interrupted(error: BaseException | None) -> bool:
    """Whether an error follows a signal: the cleanup behind it has no bridge to Java any more."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def java_exit_sentence(error: BaseException) -> str:
    """Return a sentence if an error came up because the Java process that this one has started is gone; else ""."""
    spark = sys.modules.get("pyspark")
    process = getattr(spark and spark.SparkContext._gateway, "proc", None)
    if process is None or isinstance(error, SparrowError):
        return ""
    with suppress(subprocess.TimeoutExpired):
        status = process.wait(_JAVA_EXIT_LIMIT_S if isinstance(error, ConnectionError) else 0)
        cause = f"by the signal {-status}" if status < 0 else f"with the status {status}"
        return (
            f"the Java process of Spark has ended ({cause}), and the command with it; look for the reason "
            "above, or in the log of the system, which names processes that took too much memory; then run the command "
            "again"
        )
    return ""


def _hide_broken_bridge(record: logging.LogRecord) -> bool:
    """py4j writes the stack of an answer that a signal broke off; that of a real failure is raised as well."""
    return not str(record.msg).endswith("while sending command.")


def prints_report(command: F) -> Callable[..., None]:
    """A command that gets options of files and the environment, and prints its function's report or error."""

    @wraps(command)
    def run(*args: Any, **arguments: Any) -> None:
        command_end = CommandEnd()
        with command_end.signals():
            try:
                outcome: Any = command(*args, **_add_account(_merge_option_files(arguments)))
            except KeyboardInterrupt:
                command_end.exit_stopped()
            except (SparrowError, OSError) as error:
                command_end.fail(java_exit_sentence(error) or error_sentence(error))
            except _errors_of_spark() as error:
                if is_interrupted(error):
                    command_end.exit_stopped()
                if reason := java_exit_sentence(error):
                    command_end.fail(reason)
                failure = known_failure(str(error))
                if failure is None:
                    command_end.print_line(str(error).strip().partition("\n")[0])
                    raise
                hint = "" if failure.is_permanent else "; run it again to go on"
                command_end.fail(f"{failure.reason}{hint}")
        command_end.finish(
            outcome if isinstance(outcome, Outcome) else Outcome(outcome, INCOMPLETE if outcome.away else 0)
        )

    return run


def _merge_option_files(arguments: dict[str, Any]) -> dict[str, Any]:
    """Add the options of files; those of the command line go before them."""
    merged = dict(arguments)
    for kind, file in (("options", "option_file"), ("to_options", "to_option_file")):
        if file in merged:
            named = {name.lower() for name in merged[kind]}
            merged[kind] = {
                name: value for name, value in merged.pop(file).items() if name.lower() not in named
            } | merged[kind]
    return merged


def _add_account(arguments: dict[str, Any]) -> dict[str, Any]:
    """Add the account of the environment to options without one; files of a store need none."""
    if arguments.get("name_server") is None or arguments.get("store") is not None:
        return arguments
    merged = dict(arguments)
    target_options = _TARGET_ACCOUNT if any(map(os.environ.get, _TARGET_ACCOUNT.values())) else _ACCOUNT
    for kind, variables in (("options", _ACCOUNT), ("to_options", target_options)):
        if kind in merged:
            merged[kind] = _account(variables, merged[kind]) | merged[kind]
    return merged


def _account(variables: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower().rpartition(".")[2] for name in options}
    return {
        name: os.environ[variable]
        for name, variable in variables.items()
        if name.lower() not in names and os.environ.get(variable)
    }


def _errors_of_spark() -> tuple[type[Exception], ...]:
    spark, bridge = sys.modules.get("pyspark.errors"), sys.modules.get("py4j.protocol")
    errors: list[type[Exception]] = [] if spark is None else [spark.PySparkException]
    return tuple(errors if bridge is None else [*errors, bridge.Py4JError])
