"""What does a filter cost a broker for each message that it examines?

    ./run bench filter

One queue of 20,000 messages of 128 bytes with five properties, in the file cache, is read from its beginning to its
end, 32 messages a read as pulls do, by each filter in turn; of five rounds the quickest counts. No sockets: it is the
difference that is asked for.

An entry whose tag is not wanted costs one look at its 20 bytes, also where SQL wants another one. Other SQL has to look
into the record: one copy of it, one search for a name, and some digits.
"""

from __future__ import annotations

import time
from tempfile import TemporaryDirectory
from typing import Final

from sparrowmq import compiled
from sparrowmq.broker.filters import Filters
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.selector import ALL, Selector
from sparrowmq.protocol.subscription import SQL92, java_hash
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.settings import Flush, StoreSettings

MESSAGES: Final = 20_000
ROUNDS: Final = 5
HOST: Final = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
EXPRESSIONS: Final = (
    "amount > 100",
    "amount >= 5",
    "amount > 5.5",
    "TAGS = 'a'",
    "amount > 50 AND region IS NOT NULL",
)


def main() -> None:
    filters = Filters(True)
    tags = {"none": frozenset({1}), "half": frozenset({java_hash("a")})}
    cases = {"everything": ALL} | {f"tag, {share} match": Selector(codes) for share, codes in tags.items()}
    cases |= {expression: filters.selector(SQL92, expression) for expression in EXPRESSIONS}
    with TemporaryDirectory() as folder:
        settings = StoreSettings(folder, commit_log_file_size=64 << 20, flush=Flush.ASYNC, index=False)
        with MessageStore.open(settings) as store:
            fill(store)
            print(f"compiled: {compiled.is_in_use()}")
            for name, selector in cases.items():
                quickest, matches = min(read_all(store, selector) for _ in range(ROUNDS))
                print(f"{name:36} {quickest * 1e9 / MESSAGES:6.0f} ns a message, {matches:6} match")


def fill(store: MessageStore) -> None:
    for number in range(MESSAGES):
        words = {"TAGS": "ab"[number % 2], "UNIQ_KEY": f"7F00000100002A9F{number:016X}", "WAIT": "true"}
        words |= {"amount": str(number % 10), "region": "EU"}
        text = "".join(f"{name}\x01{value}\x02" for name, value in words.items())
        store.append(Entry("bench", 0, bytes(128), Properties(text), 1, HOST))
    store.dispatch()


def read_all(store: MessageStore, selector: Selector) -> tuple[float, int]:
    """The seconds of CPU that it takes, and how many matched."""
    offset = matches = 0
    begin = time.process_time()
    while offset < MESSAGES:
        read = store.read("bench", 0, offset, 32, 256 * 1024, selector)
        offset = read.next_offset
        matches += read.count
    return time.process_time() - begin, matches


if __name__ == "__main__":
    main()
