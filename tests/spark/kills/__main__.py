"""`python -m tests.spark.kills [--rounds N] [--rows N] [--guarantee G] [--broker B] [--seed S]`: kills of a query."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from sparrowmq.spark.options import EXACTLY_ONCE, IDEMPOTENT
from tests.interop.servers import APACHE, OURS
from tests.spark.kills.rig import Rig


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run chaos spark", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="how many kills (default 20)")
    parser.add_argument("--rows", type=int, default=200_000, help="how many rows are copied (default 200000)")
    parser.add_argument("--guarantee", choices=(EXACTLY_ONCE, IDEMPOTENT), default=EXACTLY_ONCE)
    parser.add_argument("--broker", choices=(OURS, APACHE), default=OURS)
    parser.add_argument(
        "--brokers", type=int, default=1, help="over how many the topics are spread (default 1)"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeat an earlier plan")
    parser.add_argument("--keep", action="store_true", help="keep the store and the checkpoint")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sparrowmq-kills-"))
    print(f"seed {given.seed}, everything in {folder}", file=sys.stderr, flush=True)
    rig = Rig(folder, given.seed, given.guarantee, given.broker, given.brokers, tell)
    result = rig.run(given.rows, given.rounds)
    print(result.line())
    is_good = not result.lost and not result.doubled
    if is_good and not given.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if is_good else 1


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
