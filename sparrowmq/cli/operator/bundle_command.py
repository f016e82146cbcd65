"""`sparrowmq bundle`: all that is known of a cluster now in one file, for somebody who looks for a fault later."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from sparrowmq.cli.terminal.asking import HELP, ask, asking, credentials_of
from sparrowmq.cli.terminal.output import OUTPUT, done
from sparrowmq.cli.terminal.plain_terminal import shown
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.bundle import Bundle
from sparrowmq.settings.path_type import WrittenPath
from sparrowmq.version import VERSION

_OWNER_ONLY: Final = 0o600


@click.command("bundle", context_settings=HELP)
@asking
@OUTPUT
@click.argument("file", required=False, type=WrittenPath(dir_okay=False))
def bundle(file: Path | None) -> None:
    """Write logs, settings, routes, metrics and stacks of all servers into FILE, a .tar.gz, within 30 seconds.

    Secrets are removed. Messages are not in it; names of topics, groups and clients, and addresses are. Servers that do
    not answer are named on stderr and in MISSING.txt, and the status is 1. With access control it takes an
    administrator's account.
    """
    folder = f"sparrowmq-bundle-{time.strftime('%Y%m%d-%H%M%S')}"
    place = file or Path(f"{folder}.tar.gz")

    async def run(admin: Admin) -> Bundle:
        credentials = credentials_of()
        secrets = [credentials.secret_key] if credentials is not None else []
        found = Bundle(admin.servers, secrets, lambda: int(time.time() * 1000))
        await found.gather()
        return found

    found = ask(run)
    for what, why in sorted(found.missing.items()):
        click.echo(f"sparrowmq bundle: without {what}: {shown(why)}", err=True)
    try:
        _write(place, folder, found.texts)
    except OSError as error:
        raise click.ClickException(f"{place} cannot be written: {error.strerror}") from None
    count, missing = len(found.texts), sorted(found.missing)
    done(f"{count} texts are in {place}", file=str(place), texts=count, missing=missing)
    sys.exit(1 if found.missing else 0)


def _write(place: Path, folder: str, texts: Mapping[str, str]) -> None:
    """Write the file, which only its owner can read. Raises: OSError."""
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
    with os.fdopen(descriptor, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
        os.fchmod(descriptor, _OWNER_ONLY)
        for path, text in {"VERSION.txt": f"sparrowmq {VERSION}\n", **texts}.items():
            content = text.encode(errors="replace")
            member = tarfile.TarInfo(f"{folder}/{path}")
            member.size, member.mtime, member.mode = len(content), int(time.time()), _OWNER_ONLY
            archive.addfile(member, io.BytesIO(content))
