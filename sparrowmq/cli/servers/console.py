"""`sparrowmq console`: a cluster in the browser, ours or Apache's."""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from sparrowmq.cli.servers.serve import fail, log_on_stderr, run
from sparrowmq.cli.terminal.cluster_command import HELP, chosen_credentials, chosen_namesrv, chosen_tls, cluster_options
from sparrowmq.cli.terminal.output import ask_secret
from sparrowmq.console.console_settings import PORT, ConsoleSettings
from sparrowmq.console.history import lock_history_folder
from sparrowmq.console.users import Account, Accounts, Role, hash_password, parse_user, read_accounts
from sparrowmq.errors import ConfigError
from sparrowmq.settings.argument_types import Whole

if TYPE_CHECKING:
    from sparrowmq.console.console_server import Console

ONE_TIME_USER: Final = "admin"
PASSWORD: Final = "SPARROWMQ_CONSOLE_PASSWORD"


@click.command(context_settings=HELP)
@cluster_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Where it listens.")
@click.option("--port", type=Whole(0, 65535), default=PORT, show_default=True, help="0: a free one.")
@click.option("--prefix", default="", metavar="PATH", help="All addresses begin with it: /mq, for a proxy.")
@click.option("--users", metavar="FILE", help="Who may log in; --make-user prints a line for it.")
@click.option("--user", metavar="NAME[:ROLE]", help="One user; asks for the password, or takes " + PASSWORD + ".")
@click.option("--make-user", metavar="NAME:ROLE", help="Ask for a password, print the user's line, and end.")
@click.option("--read-only", is_flag=True, help="Users of all roles can only read.")
@click.option("--insecure", is_flag=True, help="Listen where others reach us, without https.")
@click.option("--certificate", metavar="FILE", help="For https, with --key.")
@click.option("--key", metavar="FILE", help="Of the certificate.")
@click.option(
    "--trusted-proxy",
    multiple=True,
    metavar="ADDRESS",
    help="A proxy, or a network of proxies, whose X-Forwarded headers count; may be repeated.",
)
@click.option(
    "--history",
    metavar="FOLDER",
    help="Keep the figures of other days there, off: only in memory. [~/.local/state/sparrowmq/console]",
)
@click.option(
    "--metrics-port",
    type=Whole(0, 65535),
    metavar="PORT",
    help="Let Prometheus read there how the console is doing; 0: a free one.",
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Where that listens; there is no log-in.")
@click.option("-v", "--verbose", is_flag=True, help="Log who does what, and not only what is wrong.")
def console(
    users: str | None, user: str | None, make_user: str | None, history: str | None, verbose: bool, **options: Any
) -> None:
    """Show the cluster in the browser: topics, groups, messages, traces, dead letters and brokers.

    Without --users and --user there is the user admin, with a password made for this start and printed.
    """
    log_on_stderr(verbose)
    try:
        if make_user:
            click.echo(_ask_account(make_user, "--make-user").line())
            sys.exit(0)
        accounts, login_note = accounts_of(users, user)
        settings = ConsoleSettings(accounts, chosen_namesrv(), **options)
        _serve(settings, history, login_note)
    except ConfigError as error:
        fail(error)


def _serve(settings: ConsoleSettings, history: str | None, login_note: str) -> NoReturn:
    """Raises: ConfigError, a setting is wrong."""
    credentials, tls = chosen_credentials(), chosen_tls()

    def ready(serving: Console) -> str:
        metrics = f", its metrics at http://{address}/metrics" if (address := serving.metrics_address) else ""
        return f"the console is at {serving.url}{login_note}{metrics}"

    with lock_history_folder(history, settings.namesrv) as folder:
        from sparrowmq.console.loading import console_of  # NiceGUI takes a second

        server = console_of(replace(settings, history=folder), credentials=credentials, tls=tls)
        run(lambda: server, ready)


def accounts_of(users: str | None, user: str | None) -> tuple[Accounts, str]:
    """Return the accounts that may log in, and a text about them. Raises: ConfigError."""
    if users and user:
        raise ConfigError("give --users or --user, not both")
    if users:
        return read_accounts(Path(users).expanduser()), ""
    if user:
        account = _ask_account(user, "--user")
        return Accounts({account.name: account}), ""
    accounts, password = one_time_account()
    return accounts, f" (user {ONE_TIME_USER}, password {password}, until it stops)"


def one_time_account() -> tuple[Accounts, str]:
    """Return one user with all rights, and the password for this start."""
    password = secrets.token_urlsafe(9)
    account = Account(ONE_TIME_USER, Role.ADMIN, hash_password(password))
    return Accounts({account.name: account}), password


def _ask_account(text: str, source: str) -> Account:
    name, role = parse_user(text, source)
    password = os.environ.get(PASSWORD) or ask_secret(
        f"Password of {name}", f"give the password in the variable {PASSWORD}"
    )
    if len(password) < 8:
        raise ConfigError("the password has fewer than 8 characters; choose a longer one")
    return Account(name, role, hash_password(password))
