"""`python -m tests.crash --rounds N [--seed S] [--flush SYNC_FLUSH|ASYNC_FLUSH]`: kill the broker N times and check."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.crash.rounds import CrashRig, sentences


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="how many times to kill (default 50)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeat an earlier run")
    parser.add_argument("--flush", choices=("SYNC_FLUSH", "ASYNC_FLUSH"), default="ASYNC_FLUSH")
    parser.add_argument("--keep", action="store_true", help="keep the store")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sparrowmq-crash-"))
    print(f"seed {arguments.seed}, {arguments.flush}, store in {folder}", flush=True)
    rig = CrashRig(folder, arguments.flush, arguments.seed)
    asyncio.run(kill_and_check(rig, arguments.rounds))
    for line in (*rig.tally.violations[:20], *sentences(rig.tally, rig.ledger)):
        print(line)
    if not rig.tally.violations and not arguments.keep:
        shutil.rmtree(folder)
    return 1 if rig.tally.violations else 0


async def kill_and_check(rig: CrashRig, rounds: int) -> None:
    """All rounds, with a line of progress every ten."""
    for number in range(1, rounds + 1):
        await rig.round()
        if number % 10 == 0:
            print(f"{number} kills, {rig.ledger.acked} acknowledged so far", flush=True)
        if rig.tally.violations:
            return
    await rig.finish()


if __name__ == "__main__":
    sys.exit(main())
