"""Values, texts and bytes that are wrong in the ways that wrong things are.

Names come from a small set, so that a server which is right has little to keep, however long this goes on.
"""

from __future__ import annotations

import random
from typing import Final

TOPICS: Final = (
    "Fuzz",
    "Fuzz-2",
    "%RETRY%fuzzers",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
)
GROUPS: Final = ("fuzzers", "fuzzers-2", "CID_RMQ_SYS_TRANS", "DEFAULT_CONSUMER")
NAMES: Final = (
    *TOPICS,
    *GROUPS,
    "broker-a",
    "DefaultCluster",
    "127.0.0.1:10911",
    "fuzz@1",
    "*",
    "TAG",
    "SQL92",
)
NUMBERS: Final = (
    0,
    1,
    -1,
    2,
    3,
    16,
    255,
    1 << 15,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 31,
    1 << 62,
    (1 << 63) - 1,
    -(1 << 63),
    1 << 63,
)
TEXTS: Final = (
    "", " ", "0", "-0", "1e9", "null", "None", "true", "a\x01b\x02", "\x01\x02", "KEYS\x01k\x02DELAY\x013\x02", "\x00",
    "ä\u20ac\U0001f600", "../../etc", "%s%n{}", "a" * 128, "x" * 5000, "a > 5 AND b IS NULL", "((((((", "a || b || *",
)  # fmt: skip
LITTLE_BYTES: Final = (
    b"",
    b"\0",
    b"\xff" * 4,
    b"{}",
    b"[]",
    b"null",
    b'{"a":',
    b"{1:2}",
    b"\x7f\xff\xff\xff",
    b"\xda\xa3\x20\xa7",
)


def number(rng: random.Random) -> int:
    """Any 64-bit number and a few beyond, small and round ones most of the time."""
    return rng.choice(NUMBERS) if rng.random() < 0.6 else rng.randrange(-4, 40)


def text(rng: random.Random) -> str:
    return rng.choice(TEXTS) if rng.random() < 0.5 else rng.choice(NAMES)


def some_bytes(rng: random.Random, at_most: int = 200) -> bytes:
    return rng.choice(LITTLE_BYTES) if rng.random() < 0.3 else rng.randbytes(rng.randrange(at_most))


def spoiled(rng: random.Random, whole: bytes) -> bytes:
    """The bytes with one to three faults: some changed, cut, doubled, or a length that lies."""
    found = bytearray(whole)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(found) + 1)
        fault = rng.randrange(5)
        if fault == 0 and place < len(found):
            found[place] = rng.randrange(256)
        elif fault == 1:
            del found[place:]
        elif fault == 2:
            found[place:place] = rng.choice(LITTLE_BYTES)
        elif fault == 3:
            found[place : place + 4] = rng.choice(NUMBERS[:13]).to_bytes(9, "big", signed=True)[-4:]
        else:
            found[place:place] = found[place : place + rng.randrange(64)]
    return bytes(found)
