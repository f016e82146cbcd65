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

from sparrowmq.cli.servers.serve import broker as serving
from sparrowmq.cli.terminal.arguments import BROKER
from sparrowmq.cli.terminal.cluster_command import CLUSTER, HELP, DefaultVerb, ask, query, verb
from sparrowmq.cli.terminal.output import Progress, done, say, table
from sparrowmq.client.admin import brokers
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.operations import broker_figures, version_of
from sparrowmq.client.admin.servers import BrokerPlace
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
@CLUSTER
def list_brokers(cluster: str | None) -> None:
    """Show each broker with its slaves: where it is, what it runs, and its messages per second."""
    rows = query(lambda admin: _rows(admin, cluster))
    heads = ("BROKER", "CLUSTER", "ID", "ADDRESS", "VERSION", "PROTOCOL", "IN/S", "OUT/S", "IN TODAY", "DISK USED")
    table(heads, rows)


async def _rows(admin: Admin, cluster: str | None) -> list[tuple[object, ...]]:
    places = [
        (place, number, address)
        for place in (await _places(admin, cluster))
        for number, address in sorted(place.addresses.items())
    ]
    figures_of_all = await asyncio.gather(*(_figures(admin, f"{place.name} at {at}", at) for place, _, at in places))
    return [
        (place.name, place.cluster, number, address, *figures)
        for (place, number, address), figures in zip(places, figures_of_all, strict=True)
    ]


async def _places(admin: Admin, cluster: str | None) -> list[BrokerPlace]:
    await admin.servers.all_masters(cluster)
    return await admin.brokers(cluster)


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
    found = ask(lambda admin: admin.broker_settings(name))
    unknown = set(keys) - set(found)
    if unknown:
        raise click.ClickException(f"broker {name} has no setting {', '.join(sorted(unknown))}")
    table(("KEY", "VALUE"), [(key, found[key]) for key in sorted(keys or found)])


@verb(broker, "set")
@click.argument("name", type=BROKER)
@click.argument("changes", metavar="KEY=VALUE...", nargs=-1, required=True)
def change(name: str, changes: tuple[str, ...]) -> None:
    """Change settings of the broker NAME, a name or an address, while it runs and for its next start.

    docs/operate/configuration.md lists the settings that can be changed. If one cannot be changed, none is.
    """
    wrong = [each for each in changes if not each.partition("=")[0].strip() or "=" not in each]
    if wrong:
        raise click.UsageError(f"{wrong[0]!r} is not KEY=VALUE")
    settings = {key.strip(): value.strip() for key, _, value in (each.partition("=") for each in changes)}
    ask(lambda admin: admin.change_broker(name, settings))
    done(f"changed {', '.join(settings)} of broker {name}", broker=name, changed=settings)


@verb(broker)
@click.argument("name", type=BROKER)
def stats(name: str) -> None:
    """Show all figures of the broker NAME, a name or an address; mqadmin's brokerStatus shows the same."""
    found = ask(lambda admin: admin.broker_figures(name))
    table(("FIGURE", "VALUE"), sorted(found.items()))


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
        return count, await _until_handled(admin, name, wait_s or 0.0)

    count, behind = ask(run)
    say(f"producers do not find broker {name} any more: its {count} topics are closed to them")
    table(("GROUP", "LAG"), sorted(behind.items()), keys={"LAG": "behind"})
    sys.exit(1 if wait_s is not None and any(behind.values()) else 0)


async def _until_handled(admin: Admin, name: str, wait_s: float) -> dict[str, int]:
    end = time.monotonic() + wait_s
    with Progress() as progress:
        while any((behind := await admin.behind(name)).values()) and time.monotonic() < end:
            progress.tell(f"{sum(behind.values()):,} messages are to be handled")
            await asyncio.sleep(min(_POLL_S, max(0.0, end - time.monotonic())))
    return behind


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
    done(f"producers find broker {name} again, with {counted(count, 'topic')}", broker=name, topics=count)


@verb(broker)
@click.argument("name", type=BROKER)
def forget(name: str) -> None:
    """Let the name servers forget the broker NAME, which died and does not come back.

    Until then `doctor`, and each command that looks at all brokers, say that it is missing.
    """
    ask(lambda admin: admin.forget_broker(name))
    done(f"the name servers have forgotten broker {name}", broker=name)
