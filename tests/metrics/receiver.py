"""A collector of OTLP over HTTP: it takes what OpenTelemetry's own definitions can read, and nothing else."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)


class Receiver(ThreadingHTTPServer):
    """Keeps what was sent.

    Attributes:
        status: what it answers; another than 200 is of a collector that takes nothing.
        requests: what came, with the path and the headers of each.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.requests: list[tuple[str, dict[str, str], ExportMetricsServiceRequest]] = []
        self.came = threading.Condition()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/metrics"

    def wait_for(self, count: int) -> None:
        with self.came:
            assert self.came.wait_for(lambda: len(self.requests) >= count, 30)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Receiver)
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        with server.came:
            found = ExportMetricsServiceRequest.FromString(body)
            server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, found))
            server.came.notify_all()
        said = ExportMetricsServiceResponse().SerializeToString()
        self.send_response(server.status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()
