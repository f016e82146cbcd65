"""`sparrowmq broker`: run a broker, or ask and change those of a cluster.

sparrowmq broker -c broker.conf -n ADDRESS      runs one, as `mqbroker` does; so does `sparrowmq broker run`
sparrowmq broker list -n ADDRESS                and config, set, stats, drain, undrain
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from typing import Final

import click

from sparrowmq.admin import brokers
from sparrowmq.admin.admin import Admin
from sparrowmq.admin.catalogue import broker_figures, version_of
from sparrowmq.cli.servers.serve import broker as serving
from sparrowmq.cli.terminal.arguments import BROKER
from sparrowmq.cli.terminal.cluster_command import CLUSTER_OPTION, HELP, DefaultVerb, ask, query, verb
from sparrowmq.cli.terminal.output import Progress, print_done, print_table, say
from sparrowmq.core.digits import whole_number
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.requests.bodies import PROTOCOL_RELEASE
from sparrowmq.settings.argument_types import Number

_POLL_S: Final = 1.0


@click.group(cls=DefaultVerb, verb="run", context_settings=HELP)
def broker() -> None:
    """Run a broker, as `mqbroker` does, or ask and change those of a cluster.

    Options without a command are those of `run`.
    """


broker.add_command(serving, "run")


@verb(broker, "list")
@CLUSTER_OPTION
def list_brokers(cluster: str | None) -> None:
    """Show each broker with its slaves: where it is, what it runs, and its messages per second."""
    rows = query(lambda admin: _rows(admin, cluster))
    heads = ("BROKER", "CLUSTER", "ID", "ADDRESS", "VERSION", "PROTOCOL", "IN/S", "OUT/S", "IN TODAY", "DISK USED")
    print_table(heads, rows)


async def _rows(admin: Admin, cluster: str | None) -> list[tuple[object, ...]]:
    await admin.servers.all_masters(cluster)
    places = [
        (place.name, place.cluster, number, address)
        for place in await admin.brokers(cluster)
        for number, address in sorted(place.addresses.items())
    ]
    figures = await asyncio.gather(
        *(_figures(admin, f"{name} at {address}", address) for name, _, _, address in places)
    )
    return [(*place, *row) for place, row in zip(places, figures, strict=True)]


async def _figures(admin: Admin, label: str, address: str) -> tuple[object, ...]:
    try:
        figures = await broker_figures(admin.servers, address)
    except SparrowError as error:
        if admin.servers.missing is not None:
            admin.servers.missing[label] = error
        return "does not answer", None, None, None, None, None
    today = int(figures.get("msgPutTotalTodayNow", 0)) - int(figures.get("msgPutTotalTodayMorning", 0))
    disk = float(figures.get("commitLogDiskRatio", "nan"))
    rates = _rate(figures, brokers.IN_RATES), _rate(figures, brokers.OUT_RATES)
    versions = version_of(figures), figures.get(PROTOCOL_RELEASE)
    return *versions, *rates, today, f"{disk:.0%}" if disk == disk else None


def _rate(figures: dict[str, str], names: tuple[str, ...]) -> str | None:
    rate = brokers.per_second(figures, *names)
    return None if rate is None else f"{rate:.1f}"


@verb(broker)
@click.argument("name", type=BROKER)
@click.argument("keys", nargs=-1)
def config(name: str, keys: tuple[str, ...]) -> None:
    """Show the settings of the broker NAME, a name or an address; or only those called KEYS."""
    settings = ask(lambda admin: admin.broker_settings(name))
    if unknown := set(keys) - set(settings):
        raise click.ClickException(f"broker {name} has no setting {', '.join(sorted(unknown))}")
    print_table(("KEY", "VALUE"), [(key, settings[key]) for key in sorted(keys or settings)])


@verb(broker, "set")
@click.argument("name", type=BROKER)
@click.argument("changes", metavar="KEY=VALUE...", nargs=-1, required=True)
def change(name: str, changes: tuple[str, ...]) -> None:
    """Change settings of the broker NAME, a name or an address, while it runs and for its next start.

    docs/operate/configuration.md lists the settings that can be changed. If one cannot be changed, none is.
    """
    for change in changes:
        if not change.partition("=")[0].strip() or "=" not in change:
            raise click.UsageError(f"{change!r} is not KEY=VALUE")
    settings = {key.strip(): value.strip() for key, _, value in (change.partition("=") for change in changes)}
    ask(lambda admin: admin.change_broker(name, settings))
    print_done(f"changed {', '.join(settings)} of broker {name}", broker=name, changed=settings)


@verb(broker)
@click.argument("name", type=BROKER)
def stats(name: str) -> None:
    """Show all figures of the broker NAME, a name or an address; mqadmin's brokerStatus shows the same."""
    figures = ask(lambda admin: admin.broker_figures(name))
    print_table(("FIGURE", "VALUE"), sorted(figures.items()))


@verb(broker)
@click.argument("name", type=BROKER)
@click.option(
    "--wait", "wait_s", metavar="SECONDS", type=Number(min=0), help="Wait at most this long until no group has lag."
)
def drain(name: str, wait_s: float | None) -> None:
    """Hide the broker NAME from producers, so that it can be emptied and stopped.

    Consumers continue. With --wait the exit status is 1 if a group still has lag. `undrain` reverts this. Restarts do
    not, if the broker has a settings file.
    """

    async def run(admin: Admin) -> tuple[int, dict[str, int]]:
        count = await admin.drain(name)
        end_s = time.monotonic() + (wait_s or 0.0)
        with Progress() as progress:
            while any((lags := await admin.behind(name)).values()) and time.monotonic() < end_s:
                progress.show(f"{sum(lags.values()):,} messages are to be handled")
                await asyncio.sleep(min(_POLL_S, max(0.0, end_s - time.monotonic())))
        return count, lags

    count, lags = ask(run)
    say(f"producers do not find broker {name} any more: its {count} topics are closed to them")
    print_table(("GROUP", "LAG"), sorted(lags.items()), keys={"LAG": "behind"})
    sys.exit(1 if wait_s is not None and any(lags.values()) else 0)


@verb(broker)
@click.argument("name", type=BROKER)
def undrain(name: str) -> None:
    """Let producers find the broker NAME again.

    The exit status is 1 if the broker takes no messages even so, because of its brokerPermission.
    """

    async def run(admin: Admin) -> tuple[int, str]:
        count = await admin.undrain(name)
        with suppress(SparrowError):  # Not every account may see the settings.
            return count, (await admin.broker_settings(name)).get("brokerPermission", "")
        return count, ""

    count, permission = ask(run)
    allowed = whole_number(permission)
    if allowed is not None and not allowed & Perm.WRITE:
        raise click.ClickException(
            f"broker {name} is not drained any more, and still takes no messages: brokerPermission = {permission}. "
            f"`sparrowmq broker set {name} brokerPermission=6` lets it"
        )
    print_done(f"producers find broker {name} again, with {counted(count, 'topic')}", broker=name, topics=count)


@verb(broker)
@click.argument("name", type=BROKER)
def forget(name: str) -> None:
    """Let the name servers forget the broker NAME, which died and does not come back.

    Until then `doctor`, and each command that looks at all brokers, say that it is missing.
    """
    ask(lambda admin: admin.forget_broker(name))
    print_done(f"the name servers have forgotten broker {name}", broker=name)
