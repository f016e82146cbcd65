"""Writes the small Apache stores under stores/: `python -m tests.golden.stores`. Needs Java and Maven.

Files are made tiny by configuration, so that a whole store, with rolled commit log and consume queues, takes a few
dozen kilobytes. Messages go in as raw frames: every byte of them is known, none tells where they were made.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Final

from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from tests.golden import STORES
from tests.interop.apache import ApacheBroker, ApacheNamesrv
from tests.interop.wire import Wire

# Only a retry topic may be that long, and a group's name may not, unless it stands in the file already.
LONG_GROUP: Final = "g" * 140
LONG_TOPIC: Final = "%RETRY%" + LONG_GROUP  # more than 127 bytes: a record of version 2

_TINY: Final = {
    "mappedFileSizeCommitLog": 8 << 10,
    "mappedFileSizeConsumeQueue": 20 * 8,
    "maxHashSlotNum": 64,
    "maxIndexNum": 256,
}
_KEPT: Final = ("commitlog", "consumequeue", "index", "config", "checkpoint", "abort")
_BORN_MS: Final = 1_700_000_000_000
_HALF, _COMMIT = 4, 8
_HOST: Final = hosts.pack("127.0.0.1:10911")
_PRODUCER: Final = "store-producer"


def clean_4_9_7() -> None:
    _make("4.9.7", "4.9.7", {}, kill=False)


def killed_4_9_7() -> None:
    """As after a crash of the process: abort is there, the checkpoint is behind."""
    _make("4.9.7-killed", "4.9.7", {}, kill=True)


def killed_4_9_7_behind_ours() -> None:
    """As when Apache's broker runs on a store of ours, has no message while it looks at its checkpoint, and is killed.

    It writes the checkpoint a second after its start, and then once a minute; ours stays there, as if it had not run.
    """
    with tempfile.TemporaryDirectory() as scratch, ApacheNamesrv("4.9.7") as namesrv:
        store = Path(scratch) / "store"
        settings = StoreSettings(
            store,
            commit_log_file_size=8192,
            consume_queue_file_entries=8,
            index_slots=64,
            index_entries=256,
        )
        with MessageStore.open(settings) as ours:
            for number in range(4):
                properties = Properties(f"KEYS\x01ours-{number}\x02")
                ours.append(Entry("StoreTopic", number % 2, b"ours %d" % number, properties, _BORN_MS, _HOST))
        with ApacheBroker("4.9.7", namesrv.address, store, _TINY) as broker:
            time.sleep(6)
            with Wire(broker.port) as wire:
                client = _Client(wire)
                for number in range(4):
                    client.send("StoreTopic", number % 2, b"apache %d" % number, TAGS="TagA", KEYS=f"apache-{number}")
            time.sleep(1)
            broker.kill()
        _keep(store, STORES / "4.9.7-killed-behind-ours")


def long_topic_5_4_0() -> None:
    _make("5.4.0", "5.4.0", {}, kill=False, long_topic=True)


def record_crc_5_4_0() -> None:
    _make("5.4.0-crc", "5.4.0", {"enabledAppendPropCRC": "true"}, kill=False)


def _make(name: str, version: str, conf: Mapping[str, object], *, kill: bool, long_topic: bool = False) -> None:
    with tempfile.TemporaryDirectory() as scratch, ApacheNamesrv(version) as namesrv:
        store = Path(scratch) / "store"
        if long_topic:
            (store / "config").mkdir(parents=True)
            groups = {"subscriptionGroupTable": {LONG_GROUP: {"groupName": LONG_GROUP}}}
            (store / "config" / "subscriptionGroup.json").write_text(json.dumps(groups))
        with ApacheBroker(version, namesrv.address, store, {**_TINY, **conf}) as broker:
            with Wire(broker.port) as wire:
                _Client(wire).fill(version, long_topic)
            if kill:
                broker.kill()
        _keep(store, STORES / name)


class _Client:
    """Sends what goes into a store; numbers its messages, so that every store has the same unique keys."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._numbers = count(1)

    def fill(self, version: str, long_topic: bool) -> None:
        self.send("StoreTopic", 0, b"plain", TAGS="TagA", KEYS="key-1 key-2", colour="blue")
        if version < "5":  # which falls over an empty body
            self.send("StoreTopic", 1, b"", TAGS="TagB")
        self.send("StoreTopic", 0, "中文".encode(), TAGS="标签", KEYS="键")
        self.send("StoreTopic", 0, b"delayed", TAGS="TagA", DELAY="3")
        self.commit(self.send("StoreTopic", 0, b"half", _HALF, TAGS="TagT", TRAN_MSG="true", PGROUP=_PRODUCER))
        for number in range(20):
            self.send("StoreTopic", number % 2, b"%03d " % number * 32, TAGS="TagA", KEYS=f"many-{number}")
        if long_topic:
            self.send(LONG_TOPIC, 0, b"a long topic", TAGS="TagA", KEYS="long")
        group = {"groupName": "store-group", "retryQueueNums": 2, "retryMaxTimes": 5}
        assert self._wire.ask(200, body=json.dumps(group).encode()).code == 0
        for queue in (0, 1):
            offset = {
                "consumerGroup": "store-group",
                "topic": "StoreTopic",
                "queueId": queue,
                "commitOffset": 3,
            }
            assert self._wire.ask(15, offset).code == 0

    def send(self, topic: str, queue: int, body: bytes, sys_flag: int = 0, **properties: str) -> dict[str, str]:
        unique = f"7F000001{next(self._numbers):024X}"
        whole = {**properties, "UNIQ_KEY": unique, "WAIT": "true"}
        fields: dict[str, object] = {
            "a": _PRODUCER,
            "b": topic,
            "c": "TBW102",
            "d": 2,
            "e": queue,
            "f": sys_flag,
            "g": _BORN_MS,
            "h": 0,
            "i": "".join(f"{name}\x01{value}\x02" for name, value in whole.items()),
            "j": 0,
            "k": "false",
            "m": "false",
        }
        reply = self._wire.ask(310, fields, body)
        assert reply.code == 0, reply
        return {**reply.fields, "unique": unique}

    def commit(self, half: dict[str, str]) -> None:
        fields: dict[str, object] = {
            "producerGroup": _PRODUCER,
            "tranStateTableOffset": half["queueOffset"],
            "commitLogOffset": int(half["msgId"][16:], 16),
            "commitOrRollback": _COMMIT,
            "fromTransactionCheck": "false",
            "msgId": half["unique"],
        }
        assert self._wire.ask(37, fields).code == 0


def _keep(store: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    for name in _KEPT:
        source = store / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("*.bak", "timer*"))
        elif source.exists():
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / name)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(target.name, size)


if __name__ == "__main__":
    clean_4_9_7()
    killed_4_9_7()
    killed_4_9_7_behind_ours()
    long_topic_5_4_0()
    record_crc_5_4_0()
