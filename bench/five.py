"""How many calls a second do RocketMQ 5's official clients make at our gRPC port, beside Apache's proxy?

    ./run bench five [--quick] [--windows 1,16,64] [--rounds 3] [--clients java,python]

Apache's own clients (Java 5.2.0, Python 5.1.2) send bodies of 128 bytes with 1, 16 and 64 calls in flight. They also
receive by 32 messages and acknowledge each: the rate of acknowledgements is counted. Ours is a broker with
`grpcServerPort`. Apache's is 5.4.0's proxy in LOCAL mode, with the broker inside it, so both are one process. Both
flush asynchronously, and run for the whole session. Rounds alternate between them, after one that warms up.

A fresh JVM compiles itself for some 20,000 calls, beside the calls. These compilations took more than half of the
client's CPU, and as many of them as there was time for: so a server that answers with fewer threads seemed to cost its
client more. With -Xbatch these compilations end with the calls that cause them, so the client warms up for so many
calls, and few are left to be measured. Receives cause more of them, and warm up for longer.

CPU of the server is that of its whole process from the client's warm-up to its end, broker and port together. On a
machine whose processors the client uses up, both servers get the client's rate: then only the CPU says something.

Bound, by a profile of 36 us for a received and acknowledged message: 5 us for the headers of the acknowledgement, 8 us
for its frames, its checks and its request to the broker inside, 7 us there, 6 us for the answers, and 7 us to receive
the message. The event loop and the system have the rest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import uvloop

from bench.pop import fill
from bench.results import keep_section, row, spread
from bench.rounds import names, numbers
from bench.servers import OURS, TOPIC, create_topic, serving
from bench.usage import cpu_s
from tests.interop.apache import ApacheNamesrv, ApacheProxy, free_ports
from tests.interop.kits import PeerMissing, five_java_jars, five_python, java

APACHE: Final = "apache-5.4.0"
SEND: Final = "send"
RECEIVE: Final = "receive"
LIMIT_S: Final = 600
_HERE: Final = Path(__file__).parent / "five_clients"
_OPENS: Final = "--add-opens=java.base/java.nio=ALL-UNNAMED"

CLIENTS: Final[Mapping[str, Callable[[], list[str]]]] = {
    "java": lambda: [
        java(),
        "-Xmx512m",
        "-Xbatch",
        _OPENS,
        "-cp",
        f"{five_java_jars()}/*",
        str(_HERE / "Load.java"),
    ],
    "python": lambda: [str(five_python()), str(_HERE / "load.py")],
}
# Calls of one measurement, by client: some seconds' worth; and those before it.
CALLS: Final = {"java": 20_000, "python": 4_000}
IN_TURN: Final = {"java": 2_000, "python": 1_000}
WARM_UP: Final = {"java": 20_000, "python": 1_000}
RECEIVES_WARM_UP: Final = {"java": 60_000, "python": 1_000}

Figures = dict[str, Any]
Cases = Mapping[tuple[str, str, int], Mapping[str, Sequence[Figures]]]


@dataclass(frozen=True)
class Server:
    """A server with a gRPC port, and the name server of its broker."""

    name: str
    grpc: str
    namesrv: str
    pid: int


@contextmanager
def ours() -> Iterator[Server]:
    """Our broker with its gRPC port."""
    port = free_ports(1)[0]
    with serving(OURS, grpcServerPort=port) as broker:
        yield Server(OURS, f"127.0.0.1:{port}", broker.namesrv, broker.pid)


@contextmanager
def apache() -> Iterator[Server]:
    """Apache's proxy with a broker inside. Raises: PeerMissing."""
    with (
        TemporaryDirectory(prefix="bench-") as folder,
        ApacheNamesrv("5.4.0") as namesrv,
        ApacheProxy("5.4.0", namesrv.address, Path(folder) / "store", jvm=("-Xms2g", "-Xmx2g")) as proxy,
    ):
        create_topic(proxy.port, TOPIC)
        yield Server(APACHE, proxy.grpc_address, namesrv.address, proxy.pid)


def measure(server: Server, client: str, what: str, window: int, calls: int, warm_up: int) -> Figures:
    """One client with so many calls in flight, in a process of its own. Raises: RuntimeError with what that wrote."""
    given = [server.grpc, what, str(window), str(warm_up), str(calls)]
    with (
        TemporaryDirectory(prefix="bench-home-") as home,
        subprocess.Popen(
            [*CLIENTS[client](), *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"HOME": home, "PATH": "/usr/bin:/bin", "JAVA_TOOL_OPTIONS": f"-Duser.home={home}"},
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        said: list[str] = []
        had_s = 0.0
        for line in process.stdout:
            said.append(line)
            if line == "ready\n":
                # Those that are left at the end wait at the next group's turn for nothing.
                uvloop.run(fill(server.namesrv, (warm_up + calls) * 5 // 4))
                process.stdin.write("\n")
                process.stdin.flush()
            elif line == "begin\n":
                had_s = cpu_s(server.pid)
            elif line.startswith("{"):
                used_s = cpu_s(server.pid) - had_s
                figures: Figures = json.loads(line)
                if figures["errors"]:
                    break
                return figures | {"server_us": used_s / calls * 1e6}
    raise RuntimeError(f"{client}, {what}, failed at {server.name}:\n{''.join(said[-40:])}")


def main() -> None:
    options = _options()
    cases: dict[tuple[str, str, int], dict[str, list[Figures]]] = defaultdict(lambda: defaultdict(list))
    missing = ""
    with ExitStack() as stack:
        servers = [stack.enter_context(ours())]
        try:
            servers.append(stack.enter_context(apache()))
        except PeerMissing as reason:
            missing = f" {APACHE} is left out: {reason}."
        for number in range(0 if options.quick else -1, options.rounds):
            for case, server in ((case, server) for case in _cases(options) for server in servers):
                calls, warm_up = _calls(*case, options.quick)
                found = measure(server, *case, calls, warm_up)
                print(*case, server.name, json.dumps(found), flush=True)
                if number >= 0:
                    cases[case][server.name].append(found)
    text = f"{page(cases)}\n\n{options.rounds} rounds by turns.{missing}"
    if options.quick:
        print(text)
    else:
        keep_section("five", (__doc__ or "").splitlines()[0], text)


def page(cases: Cases) -> str:
    """The table; a ratio is against Apache's."""
    heads = ["client", "what", "in flight", "server", "calls/s", "ratio", "CPU us/call", "ratio", "p99 ms"]
    lines = [row([*heads, "client's CPU us/call"]), row(["---"] * 10)]
    for (client, what, window), servers in cases.items():
        for name, rounds in servers.items():
            cells = [client, what, str(window), name]
            for key in ("rate", "server_us"):
                values = [each[key] for each in rounds]
                against = [each[key] for each in servers.get(APACHE, ())]
                cells += [spread(values), f"{median(values) / median(against):.2f}" if against else ""]
            cells += [spread([each[key] for each in rounds]) for key in ("p99_ms", "client_us")]
            lines.append(row(cells))
    return "\n".join(lines)


def _cases(options: argparse.Namespace) -> list[tuple[str, str, int]]:
    return [
        (client, what, window) for client in options.clients for what in (SEND, RECEIVE) for window in options.windows
    ]


def _calls(client: str, what: str, window: int, is_quick: bool) -> tuple[int, int]:
    """The measured calls, and those that warm up the client. One call at a time takes too long for that."""
    is_in_turn = what == SEND and window == 1
    calls = IN_TURN[client] if is_in_turn else CALLS[client]
    usual = RECEIVES_WARM_UP if what == RECEIVE else WARM_UP
    warm_up = calls // 4 if is_in_turn else usual[client]
    return (calls // 10, warm_up // 10) if is_quick else (calls, warm_up)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=names, default=tuple(CLIENTS), help="java,python")
    parser.add_argument("--windows", type=numbers, default=(1, 16, 64), help="calls in flight: 1,16,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round, shown and not kept")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    return options


if __name__ == "__main__":
    main()
