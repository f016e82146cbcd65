"""What does a gRPC call cost our server, beside Google's for asyncio?

    ./run bench http2 [--quick] [--windows 1,64] [--rounds 5] [--calls 10000]

Each server runs alone in a process with uvloop and answers unary calls of 128 bytes from a method that does nothing.
The client is ours, frame by frame: one connection, twelve headers of which two change with each call, as RocketMQ's
clients send them. So no client's own limits are measured. A round asks each server once. CPU is that of all the
server's threads (/proc/PID/task/*/schedstat).

Bound, by hand: a call has about 200 bytes in two frames, and its answer three frames. The twelve headers need 11 us
to be decompressed, and a write that 64 calls share costs little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

import grpc.aio
import hpack
import uvloop

from bench.http2_frames import frame, settings_frame, window_frame
from bench.results import keep_section, spread
from bench.usage import threads_cpu_us
from sparrowmq.http2.server import GrpcServer
from sparrowmq.kernel import frame_layout as frames

SERVERS: Final = ("ours", "grpcio")
METHOD: Final = "/apache.rocketmq.v2.MessagingService/SendMessage"
BODY: Final = bytes(128)
WARM_UP: Final = 2_000
_WINDOW_BYTES: Final = 32 * 1024  # of answers, before the client gives them back
_HEADERS: Final = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", METHOD),
    (":authority", "127.0.0.1:8081"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
    ("user-agent", "grpc-java-netty/1.60.0"),
    ("x-mq-language", "JAVA"),
    ("x-mq-protocol", "v2"),
    ("x-mq-client-id", "host@1234@0@abcdefgh"),
)


class Client:
    """A connection that keeps some calls in flight. It is blocking: the machine's other processor is the server's."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(frames.PREFACE + settings_frame({}) + window_frame(0, 2**20))
        self._encoder = hpack.Encoder()
        self._next_id = 1
        self._rest = b""
        self._unreturned = 0

    def run(self, calls: int, window: int) -> list[float]:
        """Make calls. Returns their times in seconds."""
        begun: dict[int, float] = {}
        times: list[float] = []
        self._send(min(window, calls), begun)
        while len(times) < calls:
            ended = self._ended()
            now = time.perf_counter()
            times += [now - begun.pop(stream_id) for stream_id in ended]
            self._send(min(len(ended), calls - len(times) - len(begun)), begun)
        return times

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _send(self, count: int, begun: dict[int, float]) -> None:
        pieces = [self._call(begun) for _ in range(count)]
        if self._unreturned > _WINDOW_BYTES:
            pieces.append(window_frame(0, self._unreturned))
            self._unreturned = 0
        if pieces:
            self._socket.sendall(b"".join(pieces))

    def _call(self, begun: dict[int, float]) -> bytes:
        stream_id, self._next_id = self._next_id, self._next_id + 2
        changing = (
            ("x-mq-request-id", f"{stream_id:032x}"),
            ("x-mq-date-time", f"20261123T{stream_id:06d}Z"),
        )
        block = self._encoder.encode((*_HEADERS, *changing))
        begun[stream_id] = time.perf_counter()
        body = b"\0" + len(BODY).to_bytes(4, "big") + BODY
        begin = frame(frames.HEADERS, frames.END_HEADERS, stream_id, block)
        return begin + frame(frames.DATA, frames.END_STREAM, stream_id, body)

    def _ended(self) -> list[int]:
        """Wait for bytes, and return the streams that ended in them."""
        data = self._rest + self._socket.recv(1 << 18)
        at, ended = 0, []
        while len(data) - at >= frames.HEAD_BYTES:
            size = int.from_bytes(data[at : at + 3], "big")
            end = at + frames.HEAD_BYTES + size
            if end > len(data):
                break
            kind, flags = data[at + 3], data[at + 4]
            if kind in (frames.RST_STREAM, frames.GOAWAY):
                raise RuntimeError(f"the server ended a call: {data[at:end]!r}")
            if kind == frames.DATA:
                self._unreturned += size
            elif kind == frames.PING and not flags & frames.ACK:
                self._socket.sendall(frame(frames.PING, frames.ACK, 0, data[end - 8 : end]))
            if kind in (frames.DATA, frames.HEADERS) and flags & frames.END_STREAM:
                ended.append(int.from_bytes(data[at + 5 : at + 9], "big"))
            at = end
        self._rest = data[at:]
        return ended


@contextmanager
def serving(name: str) -> Iterator[tuple[int, int]]:
    """A server in a process of its own: its port and process id."""
    command = [sys.executable, "-m", "bench.http2", "--serve", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


def measure(name: str, window: int, calls: int) -> dict[str, float]:
    """One measurement of one server."""
    with serving(name) as (port, pid):
        client = Client(port)
        client.run(WARM_UP, window)
        had_us, began = threads_cpu_us(pid), time.perf_counter()
        times = sorted(client.run(calls, window))
        took_s = time.perf_counter() - began
        figures = {
            "cpu_us": (threads_cpu_us(pid) - had_us) / calls,
            "rate": calls / took_s,
            "p99_ms": times[int(calls * 0.99)] * 1e3,
        }
        client.close()
    return figures


async def serve(name: str) -> None:
    """Answer calls until the process ends."""
    if name == "ours":
        async with GrpcServer({METHOD: lambda call, request: request}) as server:
            print(await server.start("127.0.0.1", 0), flush=True)
            await asyncio.get_running_loop().create_future()
        return

    async def answer(request: bytes, context: object) -> bytes:
        return request

    service, _, method = METHOD[1:].partition("/")
    handlers = {method: grpc.unary_unary_rpc_method_handler(answer)}
    google = grpc.aio.server()
    google.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = google.add_insecure_port("127.0.0.1:0")
    await google.start()
    print(port, flush=True)
    await google.wait_for_termination()


def main() -> None:
    """Measure, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--windows", type=lambda text: tuple(map(int, text.split(","))), default=(1, 64))
    parser.add_argument("--quick", action="store_true", help="one short round, shown and not kept")
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(options.serve))
        return
    if options.quick:
        options.rounds, options.calls = 1, 2_000
    text = _table(options)
    if options.quick:
        print(text)
    else:
        keep_section("http2", (__doc__ or "").splitlines()[0], text)


def _table(options: argparse.Namespace) -> str:
    rows = [
        "| in flight | server | CPU us/call | ratio | calls/s | p99 ms |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for window in options.windows:
        figures: dict[str, list[dict[str, float]]] = defaultdict(list)
        for _ in range(options.rounds):
            for name in SERVERS:
                figures[name].append(measure(name, window, options.calls))
                print(f"http2 {window} {name}", json.dumps(figures[name][-1]), flush=True)
        against = median(each["cpu_us"] for each in figures["grpcio"])
        for name in SERVERS:
            cells = [[each[key] for each in figures[name]] for key in ("cpu_us", "rate", "p99_ms")]
            ratio = f"{median(cells[0]) / against:.2f}"
            rows.append(
                f"| {window} | {name} | {spread(cells[0])} | {ratio} | {spread(cells[1])} | {spread(cells[2])} |"
            )
    return "\n".join(rows) + f"\n\n{options.rounds} rounds of {options.calls:,} calls. A ratio is against grpcio."


if __name__ == "__main__":
    main()
