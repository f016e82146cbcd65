"""`sparrowmq secure`: make the certificates, accounts and settings of a closed cluster, and renew its certificates.

`init` writes all files to a new folder beside DIR, which becomes DIR only when it is complete. Private files have mode
0600, folders 0700. `renew` signs the certificates again with the keys that they have.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import click

from sparrowmq.auth.account_files import replace_secret_file
from sparrowmq.cli.secure import cluster_plan as planning
from sparrowmq.cli.secure.authority import OWNERS_ALONE, Files, make_authority, sign
from sparrowmq.cli.secure.cluster_plan import Certificate, Plan, Wishes
from sparrowmq.cli.terminal.asking import HELP, reporting
from sparrowmq.errors import ConfigError
from sparrowmq.settings.number_type import Whole
from sparrowmq.settings.path_type import PATH

PLAN_FILE: Final = "plan.json"
AUTHORITY_DAYS: Final = 3650
_MOST_BROKERS: Final = 26
_FOLDER: Final = click.argument("folder", metavar="DIR", type=PATH)
_DAYS: Final = click.option(
    "--days",
    type=Whole(1, AUTHORITY_DAYS),
    default=365,
    show_default=True,
    help="Days that certificates are valid.",
)


@dataclass(frozen=True)
class Known:
    """The content of plan.json."""

    place: str  # the folder of the files at the servers
    name_servers: str  # their addresses
    certificates: list[Certificate]  # all that are signed here

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


@click.group(context_settings=HELP)
def secure() -> None:
    """Make a closed cluster: certificates, accounts and settings, so that no port answers a stranger."""


@secure.command()
@_FOLDER
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Host of servers, 127.0.0.1; again for more.")
@click.option("--name-servers", type=Whole(1, 9), default=1, show_default=True)
@click.option("--brokers", type=Whole(1, _MOST_BROKERS), default=1, show_default=True)
@click.option("--slaves", type=Whole(0, 9), default=0, show_default=True, help="So many of each broker.")
@click.option("--failover", "has_failover", is_flag=True, help="The brokers elect a master among them, by etcd.")
@click.option("--etcd", type=Whole(1, 9), default=1, show_default=True, help="So many etcd, with --failover.")
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help="Account of a program; again for more. [application]",
)
@click.option("--place", metavar="PATH", help="Folder of these files at the servers. By default DIR.")
@click.option("--data", metavar="PATH", default="", help="Folder of the data at the servers. By default --place.")
@click.option("--namesrv-port", type=Whole(), default=planning.NAMESRV_PORT, show_default=True)
@click.option("--broker-port", type=Whole(), default=planning.BROKER_PORT, show_default=True)
@click.option("--etcd-port", type=Whole(), default=planning.ETCD_PORT, show_default=True)
@_DAYS
def init(folder: Path, days: int, **given: Any) -> None:
    """Make the files of a closed cluster in the new folder DIR.

    DIR gets one folder for each server and each client. Each server needs its own folder, and no other file.
    """
    folder = folder.expanduser().absolute()
    given["place"] = (given["place"] or str(folder)).rstrip("/")
    given["data"] = given["data"].rstrip("/")
    for name, usual in (("hosts", Wishes.hosts), ("clients", Wishes.clients)):
        given[name] = given[name] or usual
    with reporting("secure init"):
        made = planning.plan(Wishes(**given))
        _write(folder, made, given["place"], days)
    click.echo(_next_steps(folder, made, given["clients"]))


@secure.command()
@_FOLDER
@_DAYS
def renew(folder: Path, days: int) -> None:
    """Sign all certificates of the cluster in DIR again.

    The keys stay, and so does the CA. Copy the certificates to their machines. Servers and clients use them within a
    few seconds, etcd after a restart.
    """
    with reporting("secure renew"):
        certificates = _read_plan(folder).certificates
        for each in certificates:
            _sign(folder, each, days)
    click.echo(f"signed {len(certificates)} certificates in {folder} for {days} days")


@secure.command("add-client")
@_FOLDER
@click.argument("name")
@_DAYS
def add_client(folder: Path, name: str, days: int) -> None:
    """Make a certificate and an account for one more client, NAME, of the cluster in DIR."""
    with reporting("secure add-client"):
        planning.demand_name(name)
        known = _read_plan(folder)
        wanted = Certificate(f"{name}/certificate.pem", f"{name}/key.pem", name)
        if (folder / name).exists() or name in {each.name for each in known.certificates}:
            raise ConfigError(f"{folder / name} exists already, and nothing in it is overwritten: choose another name")
        secret = planning.new_secret()
        for path, text in planning.client_texts(known.place, name, secret, known.name_servers).items():
            _write_private(folder / path, text)
        _sign(folder, wanted, days)
        shutil.copyfile(_authority(folder, wanted.authority).certificate, folder / name / "ca.pem")
        known.certificates.append(wanted)
        replace_secret_file(folder / PLAN_FILE, known.text().encode())
    click.echo(
        f"{folder / name} has the files of the client. Add these lines to accounts.yml of each server:\n\n"
        f"{planning.client_account(name, secret)}\nThey take effect within five seconds."
    )


def _write(folder: Path, made: Plan, place: str, days: int) -> None:
    """Write the folder, completely or not at all. Raises: ConfigError, OSError."""
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{folder} exists already, and nothing in it is overwritten: name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))  # its mode is 0700
    try:
        _fill(new, made, place, days)
        new.rename(folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _fill(folder: Path, made: Plan, place: str, days: int) -> None:
    for stem in made.authorities:
        make_authority(_authority(folder, stem), f"SparrowMQ {stem}", AUTHORITY_DAYS)
    for path, text in made.texts.items():
        _write_private(folder / path, text)
    for each in made.certificates:
        _sign(folder, each, days)
    for path, stem in made.copies.items():
        shutil.copyfile(_authority(folder, stem).certificate, folder / path)
    _write_private(folder / PLAN_FILE, Known(place, made.name_servers, list(made.certificates)).text())


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNERS_ALONE), "w") as file:
        file.write(text)


def _sign(folder: Path, wanted: Certificate, days: int) -> None:
    files = Files(folder / wanted.stem, folder / wanted.key)
    sign(files, wanted.name, tuple(wanted.hosts), _authority(folder, wanted.authority), days)


def _authority(folder: Path, stem: str) -> Files:
    return Files(folder / f"{stem}.pem", folder / f"{stem}.key")


def _read_plan(folder: Path) -> Known:
    """Raises: ConfigError, `init` did not make the folder."""
    try:
        plan = json.loads((folder / PLAN_FILE).read_text())
        plan["certificates"] = [Certificate(**each) for each in plan["certificates"]]
        return Known(**plan)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{folder} is no folder that `sparrowmq secure init` made: {PLAN_FILE} cannot be read ({error})"
        ) from error


def _next_steps(folder: Path, made: Plan, clients: Sequence[str]) -> str:
    starts = "\n".join(f"    {line}" for line in made.starts)
    return (
        f"{folder} has the files of the cluster. Copy the folder of each server to its machine, readable by the "
        f"server's user only.\n\nStart the servers in this order:\n{starts}\n\n"
        f"Look at the cluster:\n    . {folder}/{planning.ADMINISTRATOR}/environment\n    sparrowmq cluster\n\n"
        f"Give each program its folder ({', '.join(clients)}). Keep the *.key files of {folder} itself away from all "
        "servers: with them, new certificates are made."
    )
