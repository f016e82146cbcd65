"""Parts of all commands that ask a cluster: options, one event loop, errors.

`ask` is for changes: a broker that does not answer is an error. `change_all` is for changes at all masters, and also
names brokers that died. `query` is for questions: the command prints the answers of the other brokers, names the
missing ones on stderr, and ends with 1.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from sparrowmq.admin.admin import TIMEOUT_S, Admin
from sparrowmq.admin.servers import utc
from sparrowmq.cli.terminal import contexts, output
from sparrowmq.cli.terminal.arguments import ADMIN, BROKER, CLUSTER_NAME, CONTEXT, NameOf
from sparrowmq.cli.terminal.contexts import Context
from sparrowmq.cli.terminal.output import OUTPUT_OPTION
from sparrowmq.cli.terminal.plain_terminal import shown
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.core.exit_status import exit_status
from sparrowmq.errors import NoBroker, SparrowError
from sparrowmq.remoting.tls.tls_settings import SHARED_FILE
from sparrowmq.settings.argument_types import ABOVE_ZERO, Number

if TYPE_CHECKING:  # most commands only ask
    from sparrowmq.client.client import Client

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

HELP: Final = {"help_option_names": ["-h", "--help"]}
_MISSING_KEY: Final = "missing"
_UNCHANGED_KEY: Final = "unchanged"
CLUSTER_OPTION: Final = click.option(
    "--cluster", type=CLUSTER_NAME, metavar="NAME", help="The cluster, if there are several."
)
EXPECT_OPTION: Final = click.option(
    "--expect",
    "expected",
    type=BROKER,
    metavar="BROKER",
    multiple=True,
    help="A broker that has to be registered; may be repeated.",
)
EXIST_OK_HINT: Final = " with --exist-ok"
EXIST_OK_OPTION: Final = click.option(
    "--exist-ok", is_flag=True, help="Also where brokers have it already, which get these settings."
)
WAIT_OPTION: Final = click.option(
    "--wait",
    "limit_s",
    metavar="SECONDS",
    type=Number(min=0),
    default=3600.0,
    show_default=True,
    help="Stop after this time; the same command continues.",
)

ReadNames = Callable[[Admin, str | None, bool], Coroutine[Any, Any, Iterable[str]]]  # of a cluster; the hidden, too


def _store_value(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Keep an option's value for `ask`, so that commands need not pass it on."""
    assert param.name is not None
    ctx.meta[f"sparrowmq.{param.name}"] = value
    ctx.meta[ADMIN] = admin_of_command_line
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
        envvar=contexts.NAME_VARIABLE,
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


def options(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Give a command several options at once, in this order."""

    def decorate(command: F) -> F:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


cluster_options = options(*_CLUSTER_OPTIONS)  # those that `ask` and `connected` read
identity_options = options(*_CLUSTER_OPTIONS[3:])  # those that `credentials_of` and `tls_of` read


class DefaultVerb(click.Group):
    """A noun with a default verb, which gets the options of a line without a verb: `sparrowmq cluster` is `show`."""

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
    return lambda command: noun.command(name, help=help)(cluster_options(OUTPUT_OPTION(_with_missing_brokers(command))))


def _with_missing_brokers(command: Callable[..., object]) -> Callable[..., object]:
    """Let a command name the brokers that its answer or its change lacks, after the answer, and end with 1."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        command(*args, **options)
        missing, unchanged = _option_value(_MISSING_KEY) or {}, _option_value(_UNCHANGED_KEY) or []
        _print_missing(missing)
        for text in unchanged:
            _print_error(text)
        if missing or unchanged:
            sys.exit(1)

    return run


def add_list(noun: click.Group, help_of_all: str, read_names: ReadNames) -> None:
    """Give a noun the command `list`; with --all it also prints the hidden names."""

    @verb(noun, "list", f"Print the names of all {noun.name}s, one on a line.")
    @CLUSTER_OPTION
    @click.option("--all", "hidden", is_flag=True, help=help_of_all)
    def list_names(cluster: str | None, hidden: bool) -> None:
        output.print_names(query(lambda admin: read_names(admin, cluster, hidden)), noun.name or "")


def name_and_cluster(kind: NameOf) -> Callable[[F], F]:
    """Give a command --cluster and NAME, which is of a kind."""
    return options(CLUSTER_OPTION, click.argument("name", type=kind))


def check_changes(changes: Mapping[str, object]) -> None:
    """End a command without any change."""
    if all(value is None for key, value in changes.items() if key != "cluster"):
        path = click.get_current_context().command_path
        raise click.UsageError(f"nothing is to be changed; `{path} -h` lists what can")


def print_change(past_verb: str, name: str, brokers: Iterable[str]) -> None:
    parent = click.get_current_context().parent
    assert parent is not None, "commands of a noun"
    noun, names = parent.command.name or "", list(brokers)
    output.print_done(f"{past_verb} {noun} {name} at {', '.join(names)}", **{noun: name}, done=past_verb, brokers=names)


def ask(question: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    """Return the answer to a question to the cluster; an error ends the program with one sentence."""

    async def run() -> T:
        async with admin_of_command_line() as admin:
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

    With a topic only masters that had it count. `again` is an option that the same command needs for the others.
    """

    async def run() -> T:
        async with admin_of_command_line() as admin:
            result = await change(admin)
            lost = await admin.servers.lost()
        click.get_current_context().meta[f"sparrowmq.{_UNCHANGED_KEY}"] = [
            f"broker {name} is as before: it died {utc(broker.since_ms)}; run this command again{again} when it is back"
            for name, broker in lost.items()
            if cluster in (None, broker.cluster) and (topic is None or topic in broker.topics)
        ]
        return result

    return _run(run())


def query(question: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    """Return the answer of the brokers that answer; the command names the others when it ends.

    No answer where no broker is registered is an error: lists and searches end as commands about one thing do.
    """
    missing: dict[str, SparrowError] = {}
    click.get_current_context().meta[f"sparrowmq.{_MISSING_KEY}"] = missing

    async def run() -> T:
        async with admin_of_command_line() as admin:
            admin.servers.missing = missing
            answer = await question(admin)
            if not answer and not await admin.brokers():
                raise NoBroker(admin.servers.namesrv)
            return answer

    return _run(run(), missing)


def change_verb(
    noun: click.Group,
    name: str,
    change: Callable[..., Coroutine[Any, Any, Iterable[str]]],
    kind: NameOf,
    help: str,
    *parameters: Callable[[Any], Any],
    past_verb: str,
    question: str = "",
    again: str = "",
    is_of_topic: bool = False,
) -> None:
    """Give a noun a verb that changes the thing NAME at all masters by one method of `Admin`.

    The method gets the values of the parameters by their names. A question, which has the name at {},
    is asked without the parameter --yes. `again` and `is_of_topic` as for `change_all`.
    """

    @verb(noun, name, help)
    @name_and_cluster(kind)
    @options(*parameters)
    def run(name: str, yes: bool = True, **settings: Any) -> None:
        if past_verb == "changed":
            check_changes(settings)
        if not yes:
            output.confirm(question.format(name))
        topic = name if is_of_topic else None
        brokers = change_all(
            lambda admin: change(admin, name, **settings), settings["cluster"], topic=topic, again=again
        )
        print_change(past_verb, name, brokers)


def admin_of_command_line() -> Admin:
    """Return an admin of the cluster that the command line names. Raises: ConfigError."""
    return Admin(chosen_namesrv(), timeout_s=chosen_timeout_s(), tls=chosen_tls(), credentials=chosen_credentials())


def run_with_client(work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Return the result of work with a client that sends or reads; an error ends the program likewise."""
    from sparrowmq.client.client import Client

    async def run() -> T:
        async with Client(chosen_namesrv(), tls=chosen_tls(), credentials=chosen_credentials()) as client:
            return await work(client)

    return _run(run())


def _run(work: Coroutine[Any, Any, T], missing: Mapping[str, SparrowError] | None = None) -> T:
    try:
        return asyncio.run(work)
    except SparrowError as error:
        _print_error(str(error))
        _print_missing({name: silence for name, silence in (missing or {}).items() if silence is not error})
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


def _chosen_context() -> Context | None:
    """Return the context that this command uses. Raises: ConfigError, there is no such context."""
    return contexts.choose(_option_value("context"), _option_value("namesrv"))


def chosen_namesrv() -> str | None:
    """Return the name servers that the command line or the context names."""
    if namesrv := _option_value("namesrv"):
        return str(namesrv)
    context = _chosen_context()
    return context.namesrv if context is not None else None


def chosen_timeout_s() -> float:
    timeout_s: float = _option_value("timeout_s")
    return timeout_s


def chosen_credentials() -> Credentials | None:
    """Return the account that signs requests. Raises: ConfigError, one of the two keys is missing."""
    context = _chosen_context()
    if context is not None and not (_command_line_value("access_key") or _command_line_value("secret_key")):
        return context.credentials
    access_key, secret_key = _option_value("access_key") or "", _option_value("secret_key") or ""
    return Credentials(access_key, secret_key) if access_key or secret_key else None


def chosen_tls() -> bool | Path:
    """Return whether connections are encrypted, and by which file."""
    context = _chosen_context()
    file, encrypts = _option_value("tls_config"), bool(_option_value("tls"))
    if context is not None:
        file, encrypts = _command_line_value("tls_config") or context.tls_config, encrypts or context.tls
    if file:
        return Path(file)
    return SHARED_FILE if encrypts and SHARED_FILE.is_file() else encrypts
