"""`python -m examples.flights`: the last line of stdout is the report as JSON.

exit    0 everything is proved; 1 something failed or is wrong; 2 the command line is wrong; 130 stopped by Ctrl-C
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from select import select
from typing import Any

from examples.flights.folders import Folders
from sparrowmq.errors import ConfigError, SparrowError

INTERRUPTED = 130

SUMMARY = """
{sent:,} flights were sent and {stored:,} stored; the table has {table_rows:,} rows: \
{lost} lost, {doubled} doubled, {out_of_order} out of order.
The statistics have {statistics:,} rows, one for each airport and hour. The consumer received {messages:,} messages \
about {results:,} rows;
{again:,} messages correct an earlier one, because Spark's next micro-batch had more flights of that hour.
"""
RATES = "  {name:10}  {messages:>8,} messages in {seconds:6.2f} s  {messages_per_s:>7,}/s  {megabytes_per_s:6.2f} MB/s"
TO_TRY = """
The cluster is up until Ctrl-C. In another terminal:
  export NAMESRV_ADDR={namesrv}
  {python} examples/consume.py delays 20
  {python} examples/spark_table.py flights
"""
TO_SEE = """
The console is up until Enter or Ctrl-C:
  {address}/topics/flights           queues, offsets, and messages of the flights
  {address}/messages?topic=delays    what Spark found out
  {address}/cluster                  the broker
"""


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    folders = None
    try:
        folders = Folders(options.out)
        return play(folders, options)
    except KeyboardInterrupt:
        if folders is not None:
            folders.remove()
        print("demo: stopped", file=sys.stderr)
        return INTERRUPTED
    except ConfigError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        "python -m examples.flights",
        description="Replays 336,776 flights through a broker and Spark into tables, and proves that none was lost.",
    )
    found.add_argument("--out", type=Path, metavar="DIR", help="folder of the tables; a new temporary one by default")
    found.add_argument("--keep", action="store_true", help="leave the cluster running afterwards, until Ctrl-C")
    found.add_argument("--console", action="store_true", help="show it in the browser, and stay until Enter or Ctrl-C")
    found.add_argument("--seconds", type=positive, metavar="N", help="with --keep or --console: stay so long at most")
    found.add_argument("--limit", type=positive, metavar="N", help=argparse.SUPPRESS)
    return found


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def play(folders: Folders, options: argparse.Namespace) -> int:
    """One run; the exit status."""
    # These load the packages of Spark and Arrow, which takes a second: Ctrl-C may come already.
    from py4j.protocol import Py4JError

    from examples.flights.cluster import DemoCluster
    from examples.flights.console import ConsoleProcess
    from examples.flights.show import Show

    failures: list[BaseException] = []
    try:
        with DemoCluster(folders.store) as cluster, ExitStack() as stack:
            print(f"name server {cluster.namesrv}, broker {cluster.broker}, files in {folders.out}")
            console = None
            if options.console:
                console = stack.enter_context(ConsoleProcess(cluster.namesrv, folders.work))
                print(f"{console.sentence}; while it runs, look at {console.address}/topics/flights", flush=True)
            report = asyncio.run(Show(cluster, folders, options.limit, began()).run())
            tell(report)
            if options.keep:
                print(TO_TRY.format(namesrv=cluster.namesrv, python=sys.executable))
            if console is not None:
                print(TO_SEE.format(address=console.address))
            print(json.dumps(report), flush=True)
            if options.keep or console is not None:
                stay(options.seconds, console is not None)
        folders.keep_tables()
        return 1 if report["faults"] else 0
    except* (SparrowError, Py4JError, OSError) as group:
        failures.extend(leaves(group))
    print(f"demo: {failures[0]}\ndemo: files, and Spark's log, are left in {folders.out}", file=sys.stderr)
    return 1


def stay(seconds: int | None, until_enter: bool) -> None:
    """Return after so many seconds, or at Ctrl-C; also at Enter, where there is somebody who can press it."""
    with suppress(KeyboardInterrupt):
        if until_enter and sys.stdin.isatty():
            select([sys.stdin], [], [], seconds)
        else:
            threading.Event().wait(seconds)


def tell(report: dict[str, Any]) -> None:
    """The report for people."""
    messages = report["stages"]["results"]["messages"]
    print(SUMMARY.format(**report, messages=messages, again=messages - report["results"]))
    for name, stage in report["stages"].items():
        print(RATES.format(name=name, **stage))
    print(f"\nflights     {report['flights_table']}\nstatistics  {report['statistics_table']}")
    print(
        f"first row in Spark after {report['first_row_seconds']:.1f} s, all after {report['seconds']:.1f} s; "
        + ("; ".join(report["faults"]) or "the output is exactly the input")
    )


def began() -> float:
    """Return when the user's command began, by the steady clock: `./run` says it, so set-up counts too."""
    return time.monotonic() - (time.time() - float(os.environ.get("SPARROWMQ_DEMO_BEGAN", time.time())))


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
