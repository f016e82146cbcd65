"""Compiled modules: mypyc builds extension modules of the same source for the modules that every message passes.

    ./run compile                  tools/compile.py: MODULES -> *.so, and a checksum of the sources -> RECORD
    import sparrowmq               if all sources have that checksum, or without a record (a wheel): compiled
                                   if one differs, or if SPARROWMQ_SOURCE is set: all of them run from source

So a changed source takes effect at once, but slower, until the next `./run compile`. All modules run compiled or none,
because compiled modules rely on the layout of each other's objects.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

# A message's way: socket, frame, dispatch, handler, log, queue, and back; and the frames of HTTP/2.
MODULES: Final = (
    "sparrowmq.loop.watermark",
    "sparrowmq.loop.turn",
    "sparrowmq.loop.durability",
    "sparrowmq.core.digits",
    "sparrowmq.core.stats",
    "sparrowmq.protocol.string_hash",
    "sparrowmq.protocol.selector",
    "sparrowmq.protocol.wire.frame",
    "sparrowmq.protocol.wire.fields",
    "sparrowmq.protocol.wire.codec",
    "sparrowmq.protocol.wire.connection",
    "sparrowmq.protocol.messages.properties",
    "sparrowmq.protocol.messages.entry",
    "sparrowmq.protocol.messages.message_types",
    "sparrowmq.protocol.messages.message_id",
    "sparrowmq.protocol.messages.pulled_message",
    "sparrowmq.protocol.messages.half_record",
    "sparrowmq.protocol.signature",
    "sparrowmq.protocol.receipt_handle",
    "sparrowmq.protocol.replication",
    "sparrowmq.filter.tree",
    "sparrowmq.filter.comparison",
    "sparrowmq.store.log.log_file",
    "sparrowmq.store.log.commit_log",
    "sparrowmq.store.queues.entries",
    "sparrowmq.store.queues.consume_queue",
    "sparrowmq.store.queues.queue_table",
    "sparrowmq.store.index",
    "sparrowmq.store.key_columns",
    "sparrowmq.store.queue_builder",
    "sparrowmq.store.queues.queue_reading",
    "sparrowmq.store.store_time",
    "sparrowmq.store.appender",
    "sparrowmq.store.message_store",
    "sparrowmq.auth.request_check",
    "sparrowmq.remoting.request_in_flight",
    "sparrowmq.remoting.session",
    "sparrowmq.remoting.linked_session",
    "sparrowmq.remoting.latencies",
    "sparrowmq.remoting.quotas",
    "sparrowmq.remoting.handler",
    "sparrowmq.remoting.request_dispatch",
    "sparrowmq.http2.stream_states",
    "sparrowmq.http2.streams",
    "sparrowmq.http2.allowance",
    "sparrowmq.http2.frames",
    "sparrowmq.http2.request_headers",
    "sparrowmq.http2.response_headers",
    "sparrowmq.http2.output",
    "sparrowmq.http2.connection",
    "sparrowmq.http2.grpc_wire",
    "sparrowmq.http2.calls",
    "sparrowmq.http2.deadlines",
    "sparrowmq.http2.exchange",
    "sparrowmq.http2.plain_answer",
    "sparrowmq.http2.session",
    "sparrowmq.grpc.caller",
    "sparrowmq.grpc.message_in",
    "sparrowmq.grpc.message_out",
    "sparrowmq.grpc.client_settings",
    "sparrowmq.grpc.local_calls",
    "sparrowmq.client.message_ids",
    "sparrowmq.client.consuming.consume_rate",
    "sparrowmq.client.consuming.delivered_message",
    "sparrowmq.client.consuming.process_queue",
    "sparrowmq.client.popping.prefetch",
    "sparrowmq.client.sending.accumulator",
    "sparrowmq.broker.sql_filters",
    "sparrowmq.broker.held_pulls",
    "sparrowmq.broker.redirect",
    "sparrowmq.broker.topics",
    "sparrowmq.broker.message_writer",
    "sparrowmq.broker.offsets",
    "sparrowmq.broker.pop.pop_queue",
    "sparrowmq.broker.pop.pop_state",
    "sparrowmq.broker.transactions.half_message",
    "sparrowmq.broker.transactions.open_transactions",
    "sparrowmq.broker.transactions.transactions",
    "sparrowmq.broker.handlers.send_handler",
    "sparrowmq.broker.handlers.pull_handler",
    "sparrowmq.broker.handlers.pop_ack_handler",
    "sparrowmq.broker.handlers.transactions_handler",
)

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_: Any) -> Any:
        """Options of a compiled class: `acyclic` skips the garbage collector, `free_list_len` keeps freed objects."""
        return lambda kind: kind


_ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECORD: Final = os.path.join(_ROOT, "sparrowmq", "compiled.sum")


def source(module: str) -> str:
    return os.path.join(_ROOT, *module.split(".")) + ".py"


def checksum() -> str:
    """The checksum of the sources, and of the constants that mypyc takes over from modules that it does not compile."""
    total = 0
    for module in (*MODULES, "sparrowmq.kernel.record_layout", "sparrowmq.kernel.batch_layout"):
        with open(source(module), "rb") as file:
            total = crc32(file.read(), crc32(module.encode(), total))
    return f"{total:08x}"


def recorded() -> str | None:
    """The checksum of the sources that were compiled here; None without a compilation, as in a wheel."""
    try:
        with open(RECORD) as file:
            return file.read()
    except FileNotFoundError:
        return None


def is_in_use() -> bool:
    spec = importlib.util.find_spec(MODULES[0])
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


class _FromSource:
    """Finds the sources before Python finds what was compiled of them, perhaps when the list was another."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        is_ours = name.startswith("sparrowmq.") and os.path.isfile(source(name)) and ".kernel." not in name
        return importlib.util.spec_from_file_location(name, source(name)) if is_ours else None


def choose() -> None:
    """Have sources run instead of what was compiled, if they differ or the environment asks for it."""
    if os.environ.get("SPARROWMQ_SOURCE") or recorded() not in (None, checksum()):
        sys.meta_path.insert(0, _FromSource())
