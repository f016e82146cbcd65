"""Promises of the client while all changes: `./run stress`.

./run stress --minutes 5
./run stress --rounds 50
./run stress --hours 4 --kills 200 --messages 5000000       the long form
./run stress --hours 2 --folder FOLDER                      a part of it; the next part goes on with its stores
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.client.stress.plan import CLUSTER, FIRST_S, MEMBERS, PAUSE_S, ROUND_S, pause_for, plan, rounds
from tests.client.stress.rig import Rig, sentences

# A member that was killed keeps the queues that it had in order for 60 s.
QUIET_S = 75.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run stress", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to send (default 5)")
    parser.add_argument("--hours", type=float, help="the same in hours")
    parser.add_argument("--kills", type=int, help="kill brokers about so often; by default as often as there is time")
    parser.add_argument("--messages", type=int, help="send about so many, evenly; by default a few hundred a second")
    parser.add_argument("--plain", action="store_true", help="without ordered topics: shows which keys move, and fails")
    parser.add_argument(
        "--rounds", type=int, help="kill a broker and a name server together so often, and nothing else"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeat an earlier plan")
    parser.add_argument(
        "--folder",
        type=Path,
        help="for stores and ledgers, which are kept; a later run goes on with the stores",
    )
    parser.add_argument("--keep", action="store_true", help="keep the stores and the ledger")
    arguments = parser.parse_args()
    folder, part = arguments.folder, None
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="sparrowmq-stress-"))
    else:
        folder.mkdir(parents=True, exist_ok=True)
        part = 1 + len(list(folder.glob("part-*-books")))
    minutes = arguments.minutes if arguments.hours is None else arguments.hours * 60
    seconds = minutes * 60 if arguments.rounds is None else FIRST_S + arguments.rounds * ROUND_S
    print(f"seed {arguments.seed}, {seconds / 60:.1f} minutes, everything in {folder}", flush=True)
    rate = arguments.messages / seconds if arguments.messages else None
    rig = Rig(folder, arguments.seed, QUIET_S, tell, rate=rate, has_ordered_topics=not arguments.plain, part=part)
    if arguments.rounds is None:
        acts = (*MEMBERS, *CLUSTER)
        pause_s = pause_for(arguments.kills, seconds, acts) if arguments.kills else PAUSE_S
        steps = plan(arguments.seed, seconds, acts, can_wait=True, pause_s=pause_s)
    else:
        steps = rounds(arguments.seed, arguments.rounds)
    found = asyncio.run(rig.run(steps, seconds))
    for violation in found.violations[:20]:
        print(f"{violation.kind}: {violation.what}")
    print(*sentences(rig, found), f"seed {arguments.seed}", sep="\n")
    if not found.violations and not arguments.keep and part is None:
        shutil.rmtree(folder)
    return 1 if found.violations else 0


def tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
