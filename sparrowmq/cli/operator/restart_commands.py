"""`sparrowmq cluster restart`, `upgrade` and `decommission`: brokers that stop without a failed send."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

import click

from sparrowmq.cli.operator.cluster_commands import cluster
from sparrowmq.cli.operator.shared_verbs import AT_MOST
from sparrowmq.cli.terminal.asking import CLUSTER, ask, options, verb
from sparrowmq.cli.terminal.name_completion import BROKER
from sparrowmq.cli.terminal.output import confirm, done, say, table
from sparrowmq.cli.terminal.progress_line import Steps
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.decommission import Content, Decommission
from sparrowmq.client.admin.restart_plan import BrokerNow, Plan
from sparrowmq.client.admin.rolling_restart import Patience, RollingRestart
from sparrowmq.client.admin.scaling import Waits
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.settings.number_type import Number
from sparrowmq.version import VERSION

_USUAL: Final = Patience()
_SETTLE = click.option(
    "--settle",
    "settle_s",
    metavar="SECONDS",
    type=Number(min=0),
    default=_USUAL.settle_s,
    show_default=True,
    help="Time for producers to leave a drained broker: they look every 30 s.",
)
_HOW = options(
    click.option(
        "--run",
        metavar="COMMAND",
        help="Restart by this command instead: {broker}, {id} and {address} are replaced.",
    ),
    click.option("--dry-run", is_flag=True, help="Only show what would be done."),
    click.option(
        "--yes", is_flag=True, help="Also if the cluster is degraded, or sends may fail; do not ask."
    ),
    _SETTLE,
    click.option(
        "--wait",
        "back_s",
        metavar="SECONDS",
        type=Number(min=1),
        default=_USUAL.back_s,
        show_default=True,
        help="Give up if a broker is not well by then.",
    ),
)


@verb(cluster)
@CLUSTER
@click.option(
    "--since", metavar="TIME", type=click.DateTime(), help="Continue: leave out brokers that began after it."
)
@_HOW
def restart(since: datetime | None, **given: Any) -> None:
    """Restart all brokers one after the other: of each name the slaves, then the master, which is drained.

    The brokers restart themselves, as the same process, if --run names no command. The next one follows when all are
    well again. After an interruption, continue with the --since that is printed.
    """
    moment = since.timestamp() if since is not None else time.time()
    again = datetime.fromtimestamp(moment).isoformat(timespec="seconds")
    _run(given, int(moment * 1000), None, f"sparrowmq cluster restart --since {again}")


@verb(cluster)
@CLUSTER
@click.option(
    "--to", "version", metavar="VERSION", default=VERSION, show_default=True, help="The version to reach."
)
@_HOW
def upgrade(version: str, **given: Any) -> None:
    """Restart all brokers that do not run a version, as `restart` does; install it at each of them before.

    Brokers that run it already are left out, so run the same command again after an interruption. The status is 1 if a
    broker still runs another version at the end.
    """
    _run(given, sys.maxsize, version, f"sparrowmq cluster upgrade --to {version}")


@verb(cluster)
@click.argument("broker", type=BROKER)
@click.option("--dry-run", is_flag=True, help="Only show what it has.")
@click.option("--yes", is_flag=True, help="Give up messages that no group has consumed; do not ask.")
@_SETTLE
@AT_MOST
def decommission(broker: str, dry_run: bool, yes: bool, **times: float) -> None:
    """Empty the BROKER for good: then it and its slaves can be stopped without a lost message.

    It is drained, and read until all groups have consumed all of it, and no delayed message, timer or transaction
    waits in it. It is refused if it alone has a topic, or has queues of an ordered topic.
    """

    async def run(admin: Admin) -> bool:
        with Steps() as steps:
            leaving = Decommission(admin.servers, SystemClock(), Waits(**times), broker, steps.tell)
            found = await leaving.look()
            if dry_run:
                _show_content(found)
                return False
            if found.refusals or (found.risks and not yes):
                raise ConfigError(
                    f"broker {broker} cannot go: {'; '.join((*found.refusals, *found.risks))}; --yes gives up what "
                    "no group has consumed"
                )
            if not yes:
                confirm(f"empty broker {broker} for good?")
            await leaving.run()
            return True

    if ask(run):
        done(f"broker {broker} is empty: stop it and its slaves", broker=broker)


def _show_content(found: Content) -> None:
    rows = [*(("refused", each) for each in found.refusals), *(("lost", each) for each in found.risks)]
    table(("WHAT", "WHY"), [*rows, *([("waited for", found.left)] if found.left else [])])


def _run(given: dict[str, Any], since_ms: int, version: str | None, again: str) -> None:
    patience = Patience(given["settle_s"], back_s=given["back_s"])
    begin = _by_command(given["run"]) if given["run"] else None

    async def run(admin: Admin) -> list[str]:
        with Steps() as steps:
            rolling = RollingRestart(
                admin.servers, SystemClock(), given["cluster"], patience, steps.tell, begin
            )
            plan = await rolling.plan(since_ms, version)
            _show(plan)
            if given["dry_run"] or not plan.steps:
                return []
            _agree(plan, given["yes"])
            steps.begin(f"to continue after an interruption: {again}")
            finished = await rolling.run(plan)
            if version is not None:
                _check(await rolling.look(), version)
            return finished

    finished = ask(run)
    done(
        f"restarted {counted(len(finished), 'broker')}" if finished else "nothing was restarted",
        restarted=finished,
    )


def _show(plan: Plan) -> None:
    steps = [
        (step.target.broker, step.target.broker_id, step.target.address, step.what) for step in plan.steps
    ]
    table(("BROKER", "ID", "ADDRESS", "STEP"), [*steps, *((*_place(each), "done") for each in plan.done)])
    for line in (*plan.problems, *plan.risks):
        say(f"careful: {line}")


def _place(each: BrokerNow) -> tuple[object, ...]:
    return each.broker, each.broker_id, each.address


def _agree(plan: Plan, yes: bool) -> None:
    """Raises: ConfigError, the cluster is not fit; Abort."""
    if yes:
        return
    if plan.problems or plan.risks:
        raise ConfigError(
            f"nothing was restarted: {'; '.join((*plan.problems, *plan.risks))}. See `sparrowmq doctor`; --yes does it "
            "all the same"
        )
    confirm(f"restart {counted(len(plan.steps), 'broker')}, one after the other?")


def _check(now: list[BrokerNow], version: str) -> None:
    """Raises: ConfigError, a broker does not run the version."""
    others = [f"{each} runs {each.version or 'another program'}" for each in now if each.version != version]
    if others:
        raise ConfigError(
            f"version {version} is not everywhere: {'; '.join(others)}; install it there, and run this again"
        )


def _by_command(command: str) -> Callable[[BrokerNow], Awaitable[None]]:
    async def begin(target: BrokerNow) -> None:
        line = command.format(broker=target.broker, id=target.broker_id, address=target.address)
        process = await asyncio.create_subprocess_shell(line, stdin=asyncio.subprocess.DEVNULL)
        if await process.wait():
            raise ConfigError(f"`{line}` ended with status {process.returncode}")

    return begin
