"""The parts that source and sink share in Spark's Python processes: networks, logs, a limit of the rate, refusals.

Spark runs Python sources in synchronous code, one task after the other in a process that lives on. So networks are kept
for the life of the process, by name servers and credentials: the next task finds its connections open.

Spark configures no logging in its Python processes; Python then prints the bare text of a warning. A broker's refusal
is raised at once if retries never help: with them it would come late, and four times, as Spark repeats a task.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.client.cluster.blocking_network import BlockingNetwork, RetryPolicy, reply_header
from sparrowmq.client.sending.send_result import LESS_SAFE
from sparrowmq.errors import AccessDenied, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.signature import signer
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.tls.contexts import client_context
from sparrowmq.remoting.tls.tls_settings import ClientTlsSettings
from sparrowmq.spark.options import ClusterOptions

if TYPE_CHECKING:
    import pyarrow as pa


_LOG_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def show_warnings() -> None:
    """Print warnings with time, level and logger, unless logging is configured."""
    package = logging.getLogger("sparrowmq")
    if package.handlers or logging.getLogger().handlers:
        return
    formatter = logging.Formatter(_LOG_LINE, "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(formatter)
    package.addHandler(handler)


_CONNECTION_OPTIONS: Final = attrgetter(
    *("name_servers", "access_key", "secret_key", "security_token", "retries", "retry_interval_ms", "tls"),
    *("tls_trust", "tls_certificate", "tls_key", "tls_key_password", "tls_checks_server", "tls_checks_name"),
)
_networks: dict[tuple[object, ...], BlockingNetwork] = {}


def network_of(options: ClusterOptions, *, waits: bool = False) -> BlockingNetwork:
    """The process's network for these name servers and credentials; one that `waits` sits outages out."""
    key = (waits and options.outage_ms, *_CONNECTION_OPTIONS(options))
    network = _networks.get(key)
    if network is None:
        show_warnings()
        network = _networks[key] = connect(options, waits=waits)
    return network


def connect(options: ClusterOptions, *, waits: bool = False) -> BlockingNetwork:
    """A network of its own; leave it when done."""
    sign = None
    if options.access_key and options.secret_key:
        sign = signer(options.access_key, options.secret_key, options.security_token)
    outage_s = options.outage_ms / 1000 if waits else 0.0
    policy = RetryPolicy(options.retries, options.retry_interval_ms / 1000, outage_s)
    return BlockingNetwork(options.name_servers, sign=sign, tls=tls_context(options), retry_policy=policy)


def tls_context(options: ClusterOptions) -> SSLContext | None:
    """The settings of TLS; the files are read by tasks, so each executor needs them. Raises: ConfigError."""
    if not options.tls:
        return None
    settings = ClientTlsSettings(
        client_trust=_path(options.tls_trust),
        client_certificate=_path(options.tls_certificate),
        client_key=_path(options.tls_key),
        client_key_password=options.tls_key_password,
        checks_server=options.tls_checks_server,
        checks_server_name=options.tls_checks_name,
    )
    return client_context(settings)


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


_PORTIONS_PER_S: Final = 4


class Pace:
    """A limit of rows per second for a task (`rowsPerSecondPerTask`). Unused time is not made up for later."""

    def __init__(
        self,
        rows_per_s: float,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows_per_s = rows_per_s
        self._sleep = sleep
        self._monotonic = monotonic
        self._due_s = monotonic()

    def wait(self) -> None:
        now_s = self._monotonic()
        if now_s < self._due_s:
            self._sleep(self._due_s - now_s)
        else:
            self._due_s = now_s

    def count_rows(self, count: int) -> None:
        self._due_s += count / self._rows_per_s

    def portions(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, cut to portions, each of them not before its time."""
        max_rows = max(1, int(self._rows_per_s) // _PORTIONS_PER_S)
        for batch in batches:
            for begin in range(0, batch.num_rows, max_rows):
                portion = batch.slice(begin, max_rows)
                self.wait()
                yield portion
                self.count_rows(portion.num_rows)


def limit_rate(batches: Iterator[pa.RecordBatch], rows_per_s: int | None) -> Iterator[pa.RecordBatch]:
    """The batches at that rate, or as they come."""
    return batches if rows_per_s is None else Pace(rows_per_s).portions(batches)


# A broker answers with these while it starts, stops or is overloaded.
_TEMPORARY_CODES: Final = frozenset(
    {ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL}
)
# PullMessageProcessor, Java 4.9.8, gives it the code SYSTEM_ERROR.
_NO_SUCH_FILTER: Final = "The broker does not support consumer to filter"
# Another broker of the topic may accept what this one refuses with these.
_CODES_OF_ONE_BROKER: Final = frozenset(
    {ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_BUYER_ID}
    | {ResponseCode.NOT_IN_CURRENT_UNIT}
)


def check_stored(request: Request[Any], reply: Command) -> None:
    """Raises: RemoteError, a message was refused. One that is stored less safely than asked for is stored."""
    try:
        reply_header(request, reply)
    except RemoteError as error:
        if error.code not in LESS_SAFE:
            raise


def may_pass(refusal: RemoteError) -> bool:
    """Whether the same request may succeed later at the same broker."""
    return refusal.code in _TEMPORARY_CODES and not isinstance(refusal, AccessDenied) and not refuses_filter(refusal)


def may_go_elsewhere(error: Exception) -> bool:
    """Whether a send that this broker will never take may be taken by another."""
    return isinstance(error, RemoteError) and error.code in _CODES_OF_ONE_BROKER


def refuses_filter(refusal: RemoteError) -> bool:
    """Whether the broker refuses the expression by which messages are chosen."""
    if refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        return True
    return refusal.code == ResponseCode.SYSTEM_ERROR and refusal.remark.startswith(_NO_SUCH_FILTER)
