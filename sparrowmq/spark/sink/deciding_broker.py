"""The broker that decides about exactly-once batches, where the option brokerName names none.

A repeated batch must come to the broker that decided about it: another one would store its rows again. So the choice of
a stream is kept in its checkpoint, beside Spark's own files, and a restart, a new broker or a broker that is away does
not change it.

    /lake/once/metadata                    Spark's; it shows that this is the place of the checkpoint
    /lake/once/sparrowmq-exactly-once      {"broker":"broker-a"}

A write that is no stream has no such place. It may choose freely if it is never repeated under its name (`writeId`).
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Final

import msgspec
import pyarrow as pa
from pyarrow import fs

from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import EXACTLY_ONCE, SinkOptions
from sparrowmq.spark.sink.sender import Sender
from sparrowmq.spark.worker_network import network_of

FILE: Final = "sparrowmq-exactly-once"
_OF_SPARK: Final = "metadata"
_LOCAL: Final = re.compile("file:(//)?(?=/)")
_ADVICE: Final = "name the broker that decides by the option brokerName"


class _Kept(msgspec.Struct):
    """The content of the file."""

    broker: str


def of_stream(options: SinkOptions, checkpoint: str | None) -> SinkOptions:
    """Options of a stream with the broker that decides; it is kept in the checkpoint.

    Raises:
        ConfigError: the checkpoint cannot be reached, or another broker has decided about its batches.
        NoRoute, SendFailed, NetworkError: as `Sender.queues`.
    """
    if options.guarantee != EXACTLY_ONCE:
        return options
    place = _Checkpoint.of(checkpoint)
    if place is None:
        if options.broker_name is not None:
            return options
        raise ConfigError(
            "deliveryGuarantee=exactly_once keeps its deciding broker in the folder of the option checkpointLocation, "
            f"and {checkpoint or 'there is none among the options of the stream'} is no checkpoint that can be "
            f"reached from here; {_ADVICE}, and let it be the same for the life of the query"
        )
    kept = place.broker()
    if kept is None:
        kept = options.broker_name or _first_broker(options)
        place.keep(kept)
    if options.broker_name not in (None, kept):
        raise ConfigError(
            f"brokerName={options.broker_name}, but broker {kept} has decided about the batches of this checkpoint: "
            f"{options.broker_name} does not know which of them are stored. Write brokerName={kept}, or leave it out; "
            f"if no batch is unfinished, delete {place}"
        )
    return replace(options, broker_name=kept)


def of_write(options: SinkOptions) -> SinkOptions:
    """Options of a write with the broker that decides. Raises: ConfigError; NoRoute and others as `Sender.queues`."""
    if options.guarantee != EXACTLY_ONCE or options.broker_name is not None:
        return options
    if options.write_id is not None:
        raise ConfigError(
            f"a write that may be repeated as writeId={options.write_id} must come to the same broker each time; "
            f"{_ADVICE}"
        )
    return replace(options, broker_name=_first_broker(options))


def plan_of(checkpoint: str | None, batch: int) -> str | None:
    """Name what a batch of a stream was made of: a digest of its file of offsets, which Spark never writes again.

    A stream that begins with an older copy of its checkpoint plans a batch of this number again, in another file.

    Returns: None if the checkpoint cannot be reached from here.
    """
    place = _Checkpoint.of(checkpoint)
    offsets = place.offsets(batch) if place is not None else None
    return None if offsets is None else blake2b(offsets, digest_size=16).hexdigest()


def _first_broker(options: SinkOptions) -> str:
    """The first broker by name that takes messages of the topic."""
    if options.topic is None:
        raise ConfigError(f"the rows go to topics that a column names, so {_ADVICE}")
    queues = Sender(network_of(options), options).queues(options.topic)
    return min(queue.broker_name for queue in queues)


class _Checkpoint:
    """A file in a checkpoint, on this machine or where pyarrow can reach it (S3, HDFS, Google's storage)."""

    def __init__(self, system: fs.FileSystem, folder: str) -> None:
        self._system = system
        self._path = str(PurePosixPath(folder) / FILE)

    def __str__(self) -> str:
        return self._path

    @classmethod
    def of(cls, location: str | None) -> _Checkpoint | None:
        """The checkpoint at a place; None if there is none, as far as can be seen from here."""
        if not location:
            return None
        plain = _LOCAL.sub("", location)
        try:
            if re.match(r"[A-Za-z][\w+.-]*:", plain):
                system, folder = fs.FileSystem.from_uri(plain)
            else:
                system, folder = fs.LocalFileSystem(), os.path.abspath(plain)
            of_spark = system.get_file_info(str(PurePosixPath(folder) / _OF_SPARK))
        except (pa.ArrowException, OSError):
            return None
        return cls(system, folder) if of_spark.type is fs.FileType.File else None

    def broker(self) -> str | None:
        """The kept name. Raises: ConfigError, the file is damaged."""
        try:
            with self._system.open_input_file(self._path) as file:
                return msgspec.json.decode(file.read(), type=_Kept).broker
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ConfigError(
                f'{self} is damaged ({error}); restore it, or write the broker that decided: {{"broker":"broker-a"}}'
            ) from None

    def offsets(self, batch: int) -> bytes | None:
        """The content of Spark's file about a batch; None if it cannot be read."""
        try:
            with self._system.open_input_file(str(PurePosixPath(self._path).with_name("offsets") / str(batch))) as file:
                content: bytes = file.read()
                return content
        except OSError:
            return None

    def keep(self, broker: str) -> None:
        new = f"{self._path}.new"
        with self._system.open_output_stream(new) as file:
            file.write(msgspec.json.encode(_Kept(broker)))
        self._system.move(new, self._path)
