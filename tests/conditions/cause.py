"""The list of what goes wrong in the field, and producers that send meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

from tests.conditions.field import ADMIN, OVER_S, Field, Remedy
from tests.interop.servers import REPOSITORY

Course = Generator[None, Remedy, None]

_SENDS: Final = """
import asyncio, os, sys
from sparrowmq import Credentials, SparrowError, connect
async def main():
    level = int(sys.argv[5])
    more = {"delay_level": level} if level else {}
    async with connect(sys.argv[1], credentials=Credentials(sys.argv[3], sys.argv[4])) as mq:
        while True:
            try:
                await mq.send(sys.argv[2], b"x" * 100, **more)
            except SparrowError:
                pass
            await asyncio.sleep(0.2)
asyncio.run(main())
"""


@dataclass(frozen=True)
class Cause:
    """Something that goes wrong.

    Attributes:
        kind: the condition that shows it.
        where: the broker that has the condition.
        root: the condition from which doctor says it follows: who names that has named the cause.
        is_slow: whether it takes more than some seconds until it shows or is over.
        over_s: it is over within this time after its remedy.
        needs: what the machine must have for it.
    """

    name: str
    kind: str
    where: str
    root: str
    run: Callable[[Field], Course]
    is_slow: bool
    over_s: float
    needs: str


CAUSES: Final[list[Cause]] = []


def cause(
    kind: str,
    where: str,
    *,
    root: str = "",
    is_slow: bool = False,
    over_s: float = OVER_S,
    needs: str = "a loop device",
    among: list[Cause] = CAUSES,
) -> Callable[[Callable[[Field], Course]], object]:
    """Add a cause to a list."""

    def add(run: Callable[[Field], Course]) -> object:
        among.append(Cause(run.__name__, kind, where, root, run, is_slow, over_s, needs))
        return run

    return add


class sending:
    """A producer in a process of its own that sends to a topic until the context is left."""

    def __init__(self, field: Field, topic: str, *, account: tuple[str, str] = ADMIN, delay_level: int = 0) -> None:
        self._process = program(_SENDS, field.namesrv, topic, *account, str(delay_level))

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()


def program(text: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen([sys.executable, "-c", text, *arguments], env=environment, cwd=REPOSITORY)
