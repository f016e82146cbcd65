"""What does it cost to check a record that nobody has looked at since the start?

    ./run bench checks [--quick] [--messages 100000] [--rounds 21]

A store of messages of 128 bytes with four properties, in the file cache, is read from end to end in each way that a
broker has, by turns as what it wrote itself (which leaves as it is) and as what an earlier process wrote (whose
checksums are compared). The difference is the check. Spark's reader of files and a start check all that they see.

Bound, by hand: 37 ns for a CRC of 290 bytes with the processor's instructions for it, called from Python, 25 ns for the
bytes that it is given, 10 to 20 ns for the ten digits that it is compared with. So 0.08 us, and 0.15 us are allowed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

from bench.rounds import Run, arguments
from bench.servers import OURS
from sparrowmq.kernel.records import Passed, pass_sound
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.selector import ALL, Selector
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.store.log.scrub import Scrubber
from sparrowmq.store.log.shipping import Shipping
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings

TOPIC: Final = "Orders"
HOST: Final = hosts.pack("127.0.0.1:10911")
PULLED: Final = 32
HALF: Final = Selector(Subscription.build(TOPIC, "a").codes)
PIECE: Final = 64 << 10


class Ways:
    """Ways to read a whole store; each answers how many records it saw."""

    def __init__(self, store: MessageStore, messages: int) -> None:
        self._store = store
        self._messages = messages
        queue = store.queues.get(TOPIC, 0)
        assert queue is not None
        found = (queue.entry(offset) for offset in range(messages))
        self._places = [(entry.offset, entry.size) for entry in found if entry is not None]
        self._begin, self._end = self._places[0][0], sum(self._places[-1])

    def trust(self, *, trusted: bool) -> None:
        """Take what is stored for this process's own work, or for an earlier one's."""
        log = self._store._log
        log.verified_from = 0 if trusted else log.written

    def pulls(self, selector: Selector = ALL) -> int:
        offset = seen = 0
        while offset < self._messages:
            read = self._store.read(TOPIC, 0, offset, PULLED, selector=selector)
            offset = read.next_offset
            seen += read.count
        return seen

    def pulls_by_tag(self) -> int:
        return self.pulls(HALF)

    def finds(self) -> int:
        """As a search by key does, and one by message id."""
        return sum(self._store.record_at(offset) is not None for offset, _ in self._places)

    def copies(self) -> int:
        """As a delayed message is read when it is due, and a half message when it is committed."""
        return sum(self._store.copy_at(offset, size) is not None for offset, size in self._places)

    def ships(self) -> int:
        shipping, at = Shipping(Scrubber(self._store._log)), self._begin
        while at < self._end:
            size = shipping.reach(at, min(PIECE, self._end - at))
            content = self._store.log_bytes(at, size)
            assert content is not None
            at += len(content)
        return self._messages

    def starts(self) -> int:
        """As a start, the scrubber and Spark's reader of files look at records, which they always check."""
        passed, at = Passed(), self._begin
        while at < self._end:
            content = self._store._log.chunk(at)
            if self._store._log.verified_from:
                at += pass_sound(content, at, 0, passed)
            else:
                at += len(content)
        return self._messages


WAYS: Final[dict[str, Callable[[Ways], int]]] = {
    "pulls of 32": Ways.pulls,
    "pulls of 32 by a tag that every other message has": Ways.pulls_by_tag,
    "by key or id, one at a time": Ways.finds,
    "delayed and half messages, one at a time": Ways.copies,
    "to a slave": Ways.ships,
    "a start, the scrubber, Spark from files": Ways.starts,
}


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.set_defaults(peers=(OURS,), rounds=21)
    parser.add_argument("--messages", type=int, default=100_000)
    run = Run("checks", __doc__ or "", parser)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), run.options.messages, run.options.rounds)
    heads = "| read | us a record | checked | the check |\n| --- | --- | --- | --- |"
    note = f"{run.options.rounds} rounds over {run.options.messages:,} messages of 128 bytes: medians."
    run.keep_text("\n".join([heads, *rows, "", note]))


def measure(folder: Path, messages: int, rounds: int) -> list[str]:
    settings = StoreSettings(folder, commit_log_file_size=1 << 30, consume_queue_file_entries=300_000, store_host=HOST)
    rows = []
    with MessageStore.open(settings) as store:
        fill(store, messages)
        ways = Ways(store, messages)
        for name, read in WAYS.items():
            took: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(rounds):
                for trusted in took:
                    ways.trust(trusted=trusted)
                    took[trusted].append(seconds(ways, read) * 1e6)
            plain, checked = median(took[True]), median(took[False])
            rows.append(f"| {name} | {plain:.3f} | {checked:.3f} | {checked - plain:.3f} |")
    return rows


def seconds(ways: Ways, read: Callable[[Ways], int]) -> float:
    """What one record took."""
    begin = time.perf_counter()
    count = read(ways)
    return (time.perf_counter() - begin) / count


def fill(store: MessageStore, messages: int) -> None:
    for number in range(messages):
        words = {
            "KEYS": f"order-{number}",
            "TAGS": "ab"[number % 2],
            "UNIQ_KEY": f"{number:032X}",
            "WAIT": "true",
        }
        store.append(Entry(TOPIC, 0, bytes(128), Properties(render(words)), 1_700_000_000_000, HOST))
    store.publish()


if __name__ == "__main__":
    main()
