"""Parts of all commands that ask a cluster: options, one event loop, errors.

stdout     the result
stderr     errors, in one sentence
exit       as `exit_status` says

`ask` is for changes: a broker that does not answer is an error. `change_all` is for changes at all masters, and also
names brokers that died. `query` is for questions: the command prints the answers of the other brokers, names the
missing ones on stderr, and ends with 1.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from sparrowmq.cli.terminal import contexts
from sparrowmq.cli.terminal.arguments import ADMIN, BROKER, CLUSTER_NAME, CONTEXT, NameOf
from sparrowmq.cli.terminal.contexts import Context
from sparrowmq.cli.terminal.output import OUTPUT
from sparrowmq.cli.terminal.plain_terminal import shown
from sparrowmq.client.admin.admin import TIMEOUT_S, Admin
from sparrowmq.client.admin.servers import utc
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.core.exit_status import exit_status
from sparrowmq.errors import NoBroker, SparrowError
from sparrowmq.remoting.tls.tls_settings import SHARED_FILE
from sparrowmq.settings.argument_types import ABOVE_ZERO, Number

if TYPE_CHECKING:  # most commands only ask
    from sparrowmq.client.client import Client
from collections.abc import Iterable

from sparrowmq.cli.terminal import output

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

HELP: Final = {"help_option_names": ["-h", "--help"]}
_MISSING: Final = "missing"
_UNCHANGED: Final = "unchanged"
CLUSTER: Final = click.option("--cluster", type=CLUSTER_NAME, metavar="NAME", help="The cluster, if there are several.")

EXPECT: Final = click.option(
    "--expect",
    "expected",
    type=BROKER,
    metavar="BROKER",
    multiple=True,
    help="A broker that has to be registered; may be repeated.",
)

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


def _store_value(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Keep an option's value for `ask`, so that commands need not pass it on."""
    assert param.name is not None
    ctx.meta[f"sparrowmq.{param.name}"] = value
    ctx.meta[ADMIN] = admin_of_line
    if ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
        ctx.meta[f"sparrowmq.line.{param.name}"] = value


def _option_value(name: str) -> Any:
    return click.get_current_context().meta.get(f"sparrowmq.{name}")


def _command_line_value(name: str) -> Any:
    """The value that the command line itself gives, and not the environment."""
    return _option_value(f"line.{name}")


def _hidden_option(*names: str, **attrs: Any) -> Callable[[F], F]:
    """An option whose value the command itself does not get."""
    return click.option(*names, expose_value=False, callback=_store_value, **attrs)


_CLUSTER_OPTIONS: Final = (
    _hidden_option(
        "--context",
        type=CONTEXT,
        metavar="NAME",
        envvar=contexts.ENVIRONMENT,
        help="Address, account and TLS as `sparrowmq context set NAME` noted them.",
    ),
    _hidden_option(
        "-n",
        "--namesrv",
        metavar="ADDRESSES",
        help="Name servers: host:port;host:port. By default NAMESRV_ADDR, or the context in use.",
    ),
    _hidden_option("--timeout", "timeout_s", type=ABOVE_ZERO, default=TIMEOUT_S, show_default=True, help="In seconds."),
    _hidden_option(
        "--access-key",
        metavar="KEY",
        envvar="ROCKETMQ_ACCESS_KEY",
        help="Sign as this account of brokers with access control; or ROCKETMQ_ACCESS_KEY.",
    ),
    _hidden_option(
        "--secret-key",
        metavar="KEY",
        envvar="ROCKETMQ_SECRET_KEY",
        help="Its secret key; better in ROCKETMQ_SECRET_KEY, as others see command lines.",
    ),
    _hidden_option("--tls", is_flag=True, help="Encrypt; see also --tls-config."),
    _hidden_option(
        "--tls-config",
        metavar="FILE",
        envvar="SPARROWMQ_TLS_CONFIG",
        help=f"Encrypt as tls.client.* in this file say. Without it as {SHARED_FILE} says, if it is there.",
    ),
)


def options(*chosen: Callable[[Any], Any]) -> Callable[[F], F]:
    """Give a command several options at once, in this order."""

    def give(command: F) -> F:
        for option in reversed(chosen):
            command = option(command)
        return command

    return give


cluster_options = options(*_CLUSTER_OPTIONS)  # those that `ask` and `connected` read
identity_options = options(*_CLUSTER_OPTIONS[3:])  # those that `credentials_of` and `tls_of` read


class DefaultVerb(click.Group):
    """A noun that has a verb of its own: `sparrowmq cluster` is `sparrowmq cluster show`.

    Args:
        verb: the name of the command that gets the options of a line without a command.
    """

    def __init__(self, *args: Any, verb: str, **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self._verb = verb

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in HELP["help_option_names"]):
            args = [self._verb, *args]
        return super().parse_args(ctx, args)


def verb(
    noun: click.Group, name: str | None = None, help: str | None = None
) -> Callable[[Callable[..., object]], click.Command]:
    """Make a function a command of a noun, with the options of `cluster_options`, and --output."""
    return lambda command: noun.command(name, help=help)(cluster_options(OUTPUT(_with_missing_brokers(command))))


def _with_missing_brokers(command: Callable[..., object]) -> Callable[..., object]:
    """Let a command name the brokers that its answer or its change lacks, after the answer, and end with 1."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        command(*args, **options)
        missing, unchanged = _option_value(_MISSING) or {}, _option_value(_UNCHANGED) or []
        _print_missing(missing)
        for text in unchanged:
            _print_error(text)
        if missing or unchanged:
            sys.exit(1)

    return run


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
        output.names(query(lambda admin: names(admin, cluster, hidden)), noun.name or "")


def at_masters(kind: NameOf) -> Callable[[F], F]:
    """Give a command --cluster and NAME, which is of a kind."""
    return options(CLUSTER, click.argument("name", type=kind))


def check_changes(changes: Mapping[str, object]) -> None:
    """End a command without any change."""
    if all(value is None for key, value in changes.items() if key != "cluster"):
        path = click.get_current_context().command_path
        raise click.UsageError(f"nothing is to be changed; `{path} -h` lists what can")


def print_change(done: str, name: str, brokers: Iterable[str]) -> None:
    parent = click.get_current_context().parent
    assert parent is not None, "commands of a noun"
    noun, places = parent.command.name or "", list(brokers)
    output.done(f"{done} {noun} {name} at {', '.join(places)}", **{noun: name}, done=done, brokers=places)


def ask(question: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    """Return the answer to a question to the cluster; an error ends the program with one sentence."""

    async def run() -> T:
        async with admin_of_line() as admin:
            return await question(admin)

    return _run(run())


def change_all(
    change: Callable[[Admin], Coroutine[Any, Any, T]],
    cluster: str | None = None,
    *,
    topic: str | None = None,
    again: str = "",
) -> T:
    """Return the answer to a change at all masters. The command names those that died, and ends with 1.

    Args:
        cluster: where it is made; None if there is one.
        topic: only those that had it count.
        again: an option that the same command needs for the others.
    """

    async def run() -> T:
        async with admin_of_line() as admin:
            done = await change(admin)
            lost = await admin.servers.lost()
        click.get_current_context().meta[f"sparrowmq.{_UNCHANGED}"] = [
            f"broker {name} is as before: it died {utc(each.since_ms)}; run this command again{again} when it is back"
            for name, each in lost.items()
            if cluster in (None, each.cluster) and (topic is None or topic in each.topics)
        ]
        return done

    return _run(run())


def query(question: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    """Return the answer of the brokers that answer; the command names the others when it ends.

    No answer where no broker is registered is an error: lists and searches end as commands about one thing do.
    """
    missing: dict[str, SparrowError] = {}
    click.get_current_context().meta[f"sparrowmq.{_MISSING}"] = missing

    async def run() -> T:
        async with admin_of_line() as admin:
            admin.servers.missing = missing
            found = await question(admin)
            if not found and not await admin.brokers():
                raise NoBroker(admin.servers.namesrv)
            return found

    return _run(run(), missing)


def admin_of_line() -> Admin:
    """Return an admin of the cluster that the command line names. Raises: ConfigError."""
    return Admin(namesrv_of(), timeout_s=timeout_s_of(), tls=tls_of(), credentials=credentials_of())


def connected(work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Return the result of work with a client that sends or reads; an error ends the program likewise."""
    from sparrowmq.client.client import Client

    async def run() -> T:
        async with Client(namesrv_of(), tls=tls_of(), credentials=credentials_of()) as client:
            return await work(client)

    return _run(run())


def _run(work: Coroutine[Any, Any, T], missing: Mapping[str, SparrowError] | None = None) -> T:
    try:
        return asyncio.run(work)
    except SparrowError as error:
        _print_error(str(error))
        _print_missing({name: each for name, each in (missing or {}).items() if each is not error})
        sys.exit(exit_status(error))


@contextmanager
def errors_in_a_sentence(command: str) -> Iterator[None]:
    """End the program with one sentence for an error inside the `with`, of a command that asks no cluster."""
    try:
        yield
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        raise
    except (SparrowError, OSError) as error:
        click.echo(f"{command}: {shown(str(error))}", err=True)
        sys.exit(exit_status(error))


def _print_missing(missing: Mapping[str, SparrowError]) -> None:
    for name, error in sorted(missing.items()):
        _print_error(f"the answer lacks broker {name}: {error}")


def _print_error(text: str) -> None:
    click.echo(f"{click.get_current_context().command_path}: {shown(text)}", err=True)


def context_of() -> Context | None:
    """Return the context that this command uses. Raises: ConfigError, there is no such context."""
    return contexts.choose(_option_value("context"), _option_value("namesrv"))


def namesrv_of() -> str | None:
    """Return the name servers that the command line or the context names."""
    if namesrv := _option_value("namesrv"):
        return str(namesrv)
    context = context_of()
    return context.namesrv if context is not None else None


def timeout_s_of() -> float:
    timeout_s: float = _option_value("timeout_s")
    return timeout_s


def credentials_of() -> Credentials | None:
    """Return the account that signs requests. Raises: ConfigError, one of the two keys is missing."""
    context = context_of()
    if context is not None and not (_command_line_value("access_key") or _command_line_value("secret_key")):
        return context.credentials
    access_key, secret_key = _option_value("access_key") or "", _option_value("secret_key") or ""
    return Credentials(access_key, secret_key) if access_key or secret_key else None


def tls_of() -> bool | Path:
    """Return whether connections are encrypted, and by which file."""
    context = context_of()
    file, wanted = _option_value("tls_config"), bool(_option_value("tls"))
    if context is not None:
        file, wanted = _command_line_value("tls_config") or context.tls_config, wanted or context.tls
    if file:
        return Path(file)
    return SHARED_FILE if wanted and SHARED_FILE.is_file() else wanted
