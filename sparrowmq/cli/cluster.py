"""`sparrowmq cluster`: the master of each broker, the lag of each slave, and which member of a group leads.

sparrowmq cluster                               the table; so does `sparrowmq cluster show`
sparrowmq cluster health                        one word, for cron
sparrowmq cluster transfer -b NAME [--to N]     another member leads, without a failed send
sparrowmq cluster elect -b NAME [--member N]    an operator's decision where no member can be elected
sparrowmq cluster restart, upgrade, decommission   brokers stop without a failed send
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.brokers import Standing
from sparrowmq.admin.findings import Health, Verdict, health_of
from sparrowmq.admin.rolling_restart import BrokerNow, RestartPlan, RollingRestart, StepTimeouts
from sparrowmq.admin.scaling import Decommission, WaitLimits
from sparrowmq.cli.terminal.arguments import BROKER
from sparrowmq.cli.terminal.cluster_command import (
    CLUSTER_OPTION,
    EXPECT_OPTION,
    HELP,
    WAIT_OPTION,
    DefaultVerb,
    ask,
    options,
    query,
    verb,
)
from sparrowmq.cli.terminal.output import Steps, confirm, is_for_people, print_done, print_table, say, split_heads
from sparrowmq.cli.terminal.plain_terminal import shown
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.settings.argument_types import Number, Whole
from sparrowmq.version import VERSION

_HEADS = split_heads(
    "CLUSTER|BROKER|ID|ADDRESS|ROLE|MEMBER|EPOCH|IN SYNC|LOG EPOCH|LOG END|"
    "LAG BYTES|LAG MESSAGES|LAG SECONDS|IN TPS|OUT TPS|VERSION|PROTOCOL|PROBLEM"
)
_KEYS_OF_HEADS = {"LAG BYTES": "behind_bytes", "LAG MESSAGES": "behind_messages", "LAG SECONDS": "behind_s"}
# People see these where there are some.
_OPTIONAL_HEADS = ("MEMBER", "EPOCH", "IN SYNC", "LOG EPOCH", "LAG MESSAGES", "PROBLEM")


_BROKER_OPTION = click.option(
    "-b", "--broker", type=BROKER, required=True, metavar="NAME", help="The brokerName of the group."
)


@click.group(cls=DefaultVerb, verb="show", context_settings=HELP)
def cluster() -> None:
    """Show the brokers of a cluster, or decide which member of a replicated group leads.

    Options without a command are those of `show`.
    """


@verb(cluster)
@CLUSTER_OPTION
@click.option("--messages", is_flag=True, help="Count the messages that slaves lack: a request for each topic.")
def show(cluster: str | None, messages: bool) -> None:
    """Show the masters, the slaves in sync, the lag of each slave, and the messages per second of each broker.

    The status is 1 when a broker does not answer, or neither leads nor follows: PROBLEM says why.
    """
    standings = query(lambda admin: admin.standings(cluster, count=messages))
    rows = [_row(standing) for standing in standings]
    columns = [
        index
        for index, head in enumerate(_HEADS)
        if head not in _OPTIONAL_HEADS or not is_for_people() or any(row[index] not in (None, "") for row in rows)
    ]
    print_table(
        [_HEADS[index] for index in columns], [[row[index] for index in columns] for row in rows], keys=_KEYS_OF_HEADS
    )
    if any(standing.problem for standing in standings):
        sys.exit(1)


@verb(cluster)
@EXPECT_OPTION
def health(expected: tuple[str, ...]) -> None:
    """Print healthy, degraded or down, and on stderr what is wrong. The status is 0 only if it is healthy.

    Degraded: something is wrong, as `sparrowmq doctor` says with the remedy. Down: no name server answers, or no broker
    takes messages.
    """
    findings = ask(lambda admin: admin.examine(expected=expected))
    health = health_of(findings)
    problems = [finding.what for finding in findings if finding.verdict is Verdict.WRONG]
    if is_for_people():
        say(health.value)
        for problem in problems:
            click.echo(shown(problem), err=True)
    else:
        print_done("", health=health.value, wrong=problems)
    sys.exit(0 if health is Health.HEALTHY else 1)


@verb(cluster)
@_BROKER_OPTION
@click.option("--to", "member", type=Whole(1), metavar="N", help="That member's brokerId.")
def transfer(broker: str, member: int | None) -> None:
    """Let another member that is in sync lead: member N, or the one that has most.

    The master takes no messages until the other member leads, about two seconds. Clients of SparrowMQ wait and try
    again, so no send fails.
    """
    chosen = ask(lambda admin: admin.hand_over(broker, member))
    print_done(f"{broker}: member {chosen} leads next", broker=broker, member=chosen)


@verb(cluster)
@_BROKER_OPTION
@click.option("--member", type=Whole(1), metavar="N", help="Its brokerId. Default: that which has most.")
@click.option("--force", is_flag=True, help="Give up what only lost members in sync have. Asks first.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def elect(broker: str, member: int | None, force: bool, yes: bool) -> None:
    """Let a member lead with its log where no member can be elected.

    Needed if etcd has lost its data, and with --force if all members in sync are lost for good. The member that has
    most is that of the highest LOG EPOCH, and of these that of the highest LOG END of `sparrowmq cluster`. Members that
    have more than the new master do not follow it. The command ends when the member leads, or says why it does not.
    """
    if force and not yes:
        confirm("Messages that the new master lacks are lost to consumers. Continue?")
    chosen = ask(lambda admin: admin.elect(broker, member, force=force))
    print_done(f"{broker}: member {chosen} leads", broker=broker, member=chosen)


def _row(standing: Standing) -> list[object]:
    in_sync = None if standing.in_sync is None else ",".join(map(str, standing.in_sync))
    if standing.inherited is not None and is_for_people():
        in_sync = f"({','.join(map(str, standing.inherited))})"
    place = standing.cluster, standing.broker, standing.broker_id, standing.address, standing.role
    lag = standing.behind_bytes, standing.behind_messages, standing.behind_s
    log_and_lag = standing.member, standing.epoch, in_sync, standing.log_epoch, standing.end, *lag
    rates = standing.in_tps, standing.out_tps
    return [*place, *log_and_lag, *rates, standing.version, standing.protocol, standing.problem]


_DEFAULT_TIMEOUTS: Final = StepTimeouts()
_SETTLE_OPTION = click.option(
    "--settle",
    "settle_s",
    metavar="SECONDS",
    type=Number(min=0),
    default=_DEFAULT_TIMEOUTS.settle_s,
    show_default=True,
    help="Time for producers to leave a drained broker: they look every 30 s.",
)
_RESTART_OPTIONS = options(
    click.option(
        "--run", metavar="COMMAND", help="Restart by this command instead: {broker}, {id} and {address} are replaced."
    ),
    click.option("--dry-run", is_flag=True, help="Only show what would be done."),
    click.option("--yes", is_flag=True, help="Also if the cluster is degraded, or sends may fail; do not ask."),
    _SETTLE_OPTION,
    click.option(
        "--wait",
        "back_s",
        metavar="SECONDS",
        type=Number(min=1),
        default=_DEFAULT_TIMEOUTS.back_s,
        show_default=True,
        help="Give up if a broker is not well by then.",
    ),
)


@verb(cluster)
@CLUSTER_OPTION
@click.option("--since", metavar="TIME", type=click.DateTime(), help="Continue: leave out brokers that began after it.")
@_RESTART_OPTIONS
def restart(since: datetime | None, **options: Any) -> None:
    """Restart all brokers one after the other: of each name the slaves, then the master, which is drained.

    The brokers restart themselves, as the same process, if --run names no command. The next one follows when all are
    well again. After an interruption, continue with the --since that is printed.
    """
    moment = since.timestamp() if since is not None else time.time()
    since_text = datetime.fromtimestamp(moment).isoformat(timespec="seconds")
    _run(options, int(moment * 1000), None, f"sparrowmq cluster restart --since {since_text}")


@verb(cluster)
@CLUSTER_OPTION
@click.option("--to", "version", metavar="VERSION", default=VERSION, show_default=True, help="The version to reach.")
@_RESTART_OPTIONS
def upgrade(version: str, **options: Any) -> None:
    """Restart all brokers that do not run a version, as `restart` does; install it at each of them before.

    Brokers that run it already are left out, so run the same command again after an interruption. The status is 1 if a
    broker still runs another version at the end.
    """
    _run(options, sys.maxsize, version, f"sparrowmq cluster upgrade --to {version}")


@verb(cluster)
@click.argument("broker", type=BROKER)
@click.option("--dry-run", is_flag=True, help="Only show what it has.")
@click.option("--yes", is_flag=True, help="Give up messages that no group has consumed; do not ask.")
@_SETTLE_OPTION
@WAIT_OPTION
def decommission(broker: str, dry_run: bool, yes: bool, **times: float) -> None:
    """Empty the BROKER for good: then it and its slaves can be stopped without a lost message.

    It is drained, and read until all groups have consumed all of it, and no delayed message, timer or transaction
    waits in it. It is refused if it alone has a topic, or has queues of an ordered topic.
    """

    async def run(admin: Admin) -> bool:
        with Steps() as steps:
            decommission = Decommission(admin.servers, SystemClock(), WaitLimits(**times), broker, steps.show)
            content = await decommission.content()
            if dry_run:
                rows = [
                    *(("refused", reason) for reason in content.refusals),
                    *(("lost", risk) for risk in content.risks),
                ]
                print_table(("WHAT", "WHY"), [*rows, *([("waited for", content.left)] if content.left else [])])
                return False
            if content.refusals or (content.risks and not yes):
                raise ConfigError(
                    f"broker {broker} cannot go: {'; '.join((*content.refusals, *content.risks))}; --yes gives up what "
                    "no group has consumed"
                )
            if not yes:
                confirm(f"empty broker {broker} for good?")
            await decommission.run()
            return True

    if ask(run):
        print_done(f"broker {broker} is empty: stop it and its slaves", broker=broker)


def _run(options: dict[str, Any], since_ms: int, version: str | None, resume_command: str) -> None:
    timeouts = StepTimeouts(options["settle_s"], back_s=options["back_s"])
    begin = _restart_by_command(options["run"]) if options["run"] else None

    async def run(admin: Admin) -> list[str]:
        with Steps() as steps:
            rolling = RollingRestart(admin.servers, SystemClock(), options["cluster"], timeouts, steps.show, begin)
            plan = await rolling.plan(since_ms, version)
            _show(plan)
            if options["dry_run"] or not plan.steps:
                return []
            if not options["yes"]:
                _confirm_plan(plan)
            steps.begin(f"to continue after an interruption: {resume_command}")
            finished = await rolling.run(plan)
            others = [] if version is None else [broker for broker in await rolling.poll() if broker.version != version]
            if others:
                versions = "; ".join(f"{broker} runs {broker.version or 'another program'}" for broker in others)
                raise ConfigError(
                    f"version {version} is not everywhere: {versions}; install it there, and run this again"
                )
            return finished

    finished = ask(run)
    print_done(
        f"restarted {counted(len(finished), 'broker')}" if finished else "nothing was restarted", restarted=finished
    )


def _show(plan: RestartPlan) -> None:
    steps = [*((step.target, step.description) for step in plan.steps), *((target, "done") for target in plan.done)]
    rows = [(target.broker, target.broker_id, target.address, step) for target, step in steps]
    print_table(("BROKER", "ID", "ADDRESS", "STEP"), rows)
    for line in (*plan.problems, *plan.risks):
        say(f"careful: {line}")


def _confirm_plan(plan: RestartPlan) -> None:
    if plan.problems or plan.risks:
        raise ConfigError(
            f"nothing was restarted: {'; '.join((*plan.problems, *plan.risks))}. See `sparrowmq doctor`; --yes "
            "restarts them anyway"
        )
    confirm(f"restart {counted(len(plan.steps), 'broker')}, one after the other?")


def _restart_by_command(command: str) -> Callable[[BrokerNow], Awaitable[None]]:
    async def begin(target: BrokerNow) -> None:
        line = command.format(broker=target.broker, id=target.broker_id, address=target.address)
        process = await asyncio.create_subprocess_shell(line, stdin=asyncio.subprocess.DEVNULL)
        if await process.wait():
            raise ConfigError(f"`{line}` ended with status {process.returncode}")

    return begin
