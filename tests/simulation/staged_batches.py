"""A writer of staged batches, as the exactly-once sink is one (`sparrowmq/spark/sink/exactly_once.py`).

    stage     each batch in a new attempt, sometimes twice, and sometimes an attempt that is given up
    commit    until an answer says that the batch is decided; sometimes once more
    error     stage and commit again, sometimes as a new run of the writer

So a batch may be staged and committed any number of times, and each of its messages must be published once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from sparrowmq.client.client import Client
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages.properties import render
from sparrowmq.protocol.requests.headers import CommitBatch, StageBatch
from sparrowmq.remoting.session import Session
from tests.simulation.history import Fate

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

STAGED: Final = "staged"
QUEUES: Final = 3
_MEAN_S: Final = 2.0


class BatchWriter:
    """The program of one writer."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._rng = workload.rng
        self._run = 0
        self._attempts = 0

    async def run(self, mq: Client) -> None:
        """Write batches until the run is over."""
        batch = 0
        while not self._workload.is_over:
            await self._write(mq, batch)
            await self._workload.pause(_MEAN_S)
            batch += 1

    async def _write(self, mq: Client, batch: int) -> None:
        workload, history = self._workload, self._workload.history
        rows: dict[int, list[str]] = defaultdict(list)
        for _ in range(self._rng.randint(1, 8)):
            identity = workload.next_identity("w", mq)
            rows[self._rng.randrange(QUEUES)].append(identity)
            history.later[identity] = Fate.AT_MOST_ONCE
        identities = [identity for part in rows.values() for identity in part]
        history.batches.append(identities)
        while True:
            try:
                await self._decide(await workload.session(mq), batch, rows)
            except SparrowError as error:
                workload.log(error)
                history.failed += 1
                self._run += self._rng.random() < 0.3
                await workload.pause(0.5)
            else:
                for identity in identities:
                    history.will_come(identity, f"batch {batch}")
                return

    async def _decide(self, session: Session, batch: int, rows: dict[int, list[str]]) -> None:
        """Raises: SparrowError, the batch may be decided or not."""
        while True:
            name = await self._stage(session, batch, rows)
            if self._rng.random() < 0.8:
                break
        body = json.dumps({"attempts": {name: len(rows)}}).encode()
        while True:
            await session.call(CommitBatch("writer", f"run{self._run}", batch), body)
            if self._rng.random() < 0.8:
                return

    async def _stage(self, session: Session, batch: int, rows: dict[int, list[str]]) -> str:
        """Stage the rows, and return the name of the attempt."""
        self._attempts += 1
        name, born_ms = f"attempt{self._attempts}", 1_800_000_000_000
        for number, (queue, identities) in enumerate(rows.items()):
            parts = [
                batches.BatchPart(each.encode(), render({"UNIQ_KEY": f"{each}-key"}).encode()) for each in identities
            ]
            request = StageBatch(STAGED, queue, "writer", f"run{self._run}", batch, name, number, born_ms)
            for _ in range(1 + (self._rng.random() < 0.1)):
                await session.call(request, batches.encode(parts))
        return name
