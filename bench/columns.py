"""How long does it take to make Arrow columns of a pull body?

    ./run bench columns [rows]

8,192 records of 100 bytes with 5 properties, as an application with keys, tags and a property of its own sends them.
Bound: a row is some 300 bytes, of which 250 are copied once or twice: 0.1 us at 5 GB/s; the walk from record to record
is one Python step a row: 0.07 us.
"""

import sys
import time
from collections.abc import Callable

from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.properties import Properties
from tests.spark.columns.decoding import COLUMNS, decode

ROUNDS = 30
CHOICES = {
    "all columns": list(COLUMNS),
    "all but properties": [name for name in COLUMNS if name != "properties"],
    "keys, body, queueId, queueOffset, storeTimestamp": [
        "keys",
        "body",
        "queueId",
        "queueOffset",
        "storeTimestamp",
    ],
    "body, queueOffset": ["body", "queueOffset"],
}


PROPERTIES = "KEYS\x01order-%d\x02TAGS\x01paid\x02UNIQ_KEY\x010A00000100002A9F%016X\x02region\x01eu\x02CLUSTER\x01c\x02"


def pull_body(rows: int) -> bytes:
    """Records of one queue."""
    host = hosts.pack("10.0.0.1:10911")
    return b"".join(
        record.encode(
            Entry("Orders", 1, b"x" * 100, Properties(PROPERTIES % (offset, offset)), 1_700_000_000_000, host),
            Placed(offset * 300, offset, 1_700_000_000_001 + offset, host),
        )
        for offset in range(rows)
    )


def best_us(work: Callable[[], object], rows: int) -> float:
    """The quickest of several rounds, per row: the machine is shared, and noise only adds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times) / rows * 1e6


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 8192
    body = pull_body(rows)
    print(f"{rows} rows, {len(body) / rows:.0f} bytes each")
    for title, names in CHOICES.items():
        print(f"{best_us(lambda names=names: decode(body, names), rows):6.3f} us/row  {title}")  # type: ignore[misc]


if __name__ == "__main__":
    main()
