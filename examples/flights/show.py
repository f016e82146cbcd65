"""The demo from its first message to its proof: starts every part, watches them, and ends them in any case.

cluster ─┬─ consumer of results ──────────────────────────────────┐
         ├─ read the data set ── replay ──────────────┐           │
         └─ start Spark ──────── both queries ────────┴─ tables ──┴── proof
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from examples.flights import proof
from examples.flights.cluster import DemoCluster
from examples.flights.flight_book import FlightBook
from examples.flights.folders import Folders
from examples.flights.replay import Replay
from examples.flights.results import Results
from examples.flights.screen import Screen
from examples.flights.session import SparkProcess
from examples.flights.stages import Stages
from examples.flights.tables import Places, make_tables
from sparrowmq.client.client import Client, connect
from sparrowmq.errors import SparrowError

FLIGHTS, DELAYS = "flights", "delays"
QUEUES = 4
REFRESH_S = 0.2
RESULTS_TIMEOUT_S = 30.0
LAST_ANSWERS_S = 3.0

STARTING = "Spark is starting (about five seconds); its bars move after that"
FIRST_BATCH = "Spark is running its first micro-batches, which take the longest"
LAST_RESULTS = "the consumer is receiving the last results"
PROVING = "comparing every row with the data set"

Call = Callable[..., Awaitable[Any]]


class Show:
    """One run.

    Args:
        limit: only the first so many flights.
        started: when the user began, by the steady clock; now by default.
    """

    def __init__(
        self, cluster: DemoCluster, folders: Folders, limit: int | None = None, started: float | None = None
    ) -> None:
        self._started = started or time.monotonic()
        self._cluster = cluster
        self._folders = folders
        self._limit = limit
        self._stages = Stages()
        self._results = Results(self._stages.results)
        self.screen = Screen(self._stages, self._results)

    async def run(self) -> dict[str, Any]:
        """The report, with what is wrong in `faults`. Raises: an ExceptionGroup of what failed."""
        for topic in (FLIGHTS, DELAYS):
            self._cluster.create_topic(topic, QUEUES)
        with self.screen:
            async with asyncio.TaskGroup() as tasks:
                refreshing = tasks.create_task(self._refresh())
                source = await self._everything()
                refreshing.cancel()
        evidence = proof.Evidence(
            sent=self._stages.replay.done,
            stored=self._cluster.stored(FLIGHTS, QUEUES),
            flights_table=self._folders.flights_table,
            statistics_table=self._folders.statistics_table,
            results=self._results.rows,
        )
        return self._report(proof.prove(evidence, source))

    async def _everything(self) -> Any:
        """All that goes on at the same time; gives what the tables must hold."""
        spark, stages = SparkProcess(self._folders.work), self._stages
        with thread_of(spark) as in_thread:
            async with connected(self._cluster.namesrv) as mq, asyncio.TaskGroup() as tasks:
                consuming = tasks.create_task(self._results.consume(mq, DELAYS))
                starting = tasks.create_task(_task(in_thread(spark.start)))
                replay = tasks.create_task(self._replay(mq))
                stages.waits = STARTING
                session = await starting
                stages.waits = FIRST_BATCH
                await in_thread(make_tables, session, self._places(), stages)
                stages.waits = LAST_RESULTS
                await replay
                await self._wait_for_results()
                consuming.cancel()
            stages.waits = PROVING
            stopping = in_thread(spark.stop, session)
            source = await asyncio.to_thread(proof.departures, self._limit)
            await stopping
        return source

    async def _replay(self, mq: Client) -> None:
        stages = self._stages
        flights = await asyncio.to_thread(FlightBook, self._limit)
        for stage in (stages.replay, stages.table, stages.statistics):
            stage.total = len(flights)
        await Replay(mq, FLIGHTS, stages.replay).run(flights)
        stages.table.size_bytes = stages.statistics.size_bytes = stages.replay.size_bytes

    async def _wait_for_results(self) -> None:
        stage = self._stages.results
        stage.total = self._cluster.stored(DELAYS, QUEUES)
        deadline = time.monotonic() + RESULTS_TIMEOUT_S
        while stage.done < stage.total:
            if time.monotonic() > deadline:
                raise SparrowError(f"only {stage.done} of {stage.total} results were consumed in time")
            await asyncio.sleep(REFRESH_S / 4)

    async def _refresh(self) -> None:
        stages = self._stages
        while True:
            if stages.waits == FIRST_BATCH and stages.table.done and stages.statistics.done:
                stages.waits = ""
            self.screen.refresh()
            await asyncio.sleep(REFRESH_S)

    def _places(self) -> Places:
        folders = self._folders
        tables = (folders.flights_table, folders.statistics_table)
        return Places(self._cluster.namesrv, FLIGHTS, DELAYS, *tables, folders.work)

    def _report(self, verdict: proof.Verdict) -> dict[str, Any]:
        return {
            **verdict.figures,
            "flights_table": str(self._folders.flights_table),
            "statistics_table": str(self._folders.statistics_table),
            "first_row_seconds": round((self._stages.table.first or self._started) - self._started, 3),
            "seconds": round(time.monotonic() - self._started, 3),
            "stages": {name: stage.report() for name, stage in self._stages.all().items()},
            "faults": verdict.faults,
        }


@asynccontextmanager
async def connected(namesrv: str) -> AsyncIterator[Client]:
    """A client that waits for the last answers after Ctrl-C too, so that no message is left in doubt."""
    async with connect(namesrv) as mq:
        try:
            yield mq
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(mq.flush(), LAST_ANSWERS_S)


@contextmanager
def thread_of(spark: SparkProcess) -> Iterator[Call]:
    """A thread for Spark's blocking calls. Whatever it is at, in the end Spark is gone, and the thread too."""
    with ThreadPoolExecutor(1, "spark") as thread:
        try:
            yield lambda call, *args: asyncio.get_running_loop().run_in_executor(thread, call, *args)
        finally:
            spark.kill()


async def _task(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
