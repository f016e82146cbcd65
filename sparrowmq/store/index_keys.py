"""The keys by which a message can be found: its unique key, and each word of its KEYS, as hashes for the index.

Source: IndexFile.indexKeyHashMethod and IndexService.buildIndex, Java 4.9.8.
"""

from __future__ import annotations

from sparrowmq.kernel.log_tail import KeyHashes
from sparrowmq.kernel.string_hash import positive, string_hash
from sparrowmq.protocol.messages.properties import Properties


def key_hash(topic: str, key: str) -> int:
    return positive(string_hash(f"{topic}#{key}"))


def keys_of(properties: Properties) -> list[str]:
    unique_key = properties.unique_key
    return [*properties.keys] if unique_key is None else [unique_key, *properties.keys]


def add_keys(
    target: KeyHashes, topic: str, offset: int, stored_ms: int, keys: tuple[str, ...], unique: str | None
) -> None:
    """Add the keys of the record at `offset`, the unique one first."""
    if unique is not None:
        target.add(key_hash(topic, unique), offset, stored_ms)
    for key in keys:
        target.add(key_hash(topic, key), offset, stored_ms)
