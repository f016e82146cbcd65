"""What do two brokers of one service take on two processors, beside one broker, and beside Apache's on both?

    ./run bench brokers [--quick] [--flush ASYNC_FLUSH] [--bodies 128,1024] [--windows 64]

`mqbroker --brokers 2` against `--brokers 1`, and Apache's 4.9.7, which is one process with many threads. As many load
generators as there are brokers, with one connection each, all at once; Apache's gets two connections, too. A rate is
the sum of theirs. All are warmed, then each takes its turn, three rounds.

Bound, by hand: a broker takes 4 us of a processor for a message and its generator 2 to 3, so one pair needs two
processors at 250,000/s and has them to itself; two pairs share them: (2 processors / 6.5 us) = 300,000/s at most. So on
two processors the second broker is worth a fifth, as long as the load comes from the same machine; what it is worth
beside generators elsewhere is told by the CPU that a message costs, which must not rise.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.load import run_load
from bench.results import Measure
from bench.rounds import Run, arguments, names, numbers
from bench.servers import OURS, QUEUES, REFERENCE, TOPIC, create_topic, serving
from tests.interop.apache import free_ports
from tests.interop.child import Child, scratch
from tests.interop.kits import PeerMissing

MEASURES: Final = (
    Measure("messages/s", lambda f: f["rate"]),
    Measure("CPU us/message", lambda f: f["broker_cpu_s"] / f["messages"] * 1e6),
    Measure("p99 us", lambda f: f["p99_us"], compared=False),
    Measure("refused", lambda f: f["errors"], compared=False),
)
STEP: Final = 10  # between the ports of the brokers of one service


@dataclass(frozen=True)
class Service:
    """What takes messages: its ports, each of which gets a generator, and the process behind each."""

    name: str
    ports: Sequence[int]
    pids: Sequence[int]


class _Brokers(Child):
    """`mqbroker --brokers N`."""

    def __init__(self, count: int, store: Path, flush: str) -> None:
        home = scratch("bench-brokers")
        self.count = count
        self.port = free_ports(1)[0]
        settings = {
            "brokerIP1": "127.0.0.1",
            "brokerName": "broker",
            "listenPort": self.port,
            "storePathRootDir": store,
            "flushDiskType": flush,
            "fastListenPort": "off",
            "haListenPort": "off",
        }
        conf = Path(home.name) / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        program = Path(sys.executable).parent / "mqbroker"
        super().__init__(home, [str(program), "--brokers", str(count), "-c", str(conf)], SPARROWMQ_KERNEL="")

    def _wait_ready(self) -> None:
        while self.said().count("boot success") < self.count:
            self.wait_for("boot success")

    @property
    def brokers(self) -> list[int]:
        """The processes that serve: those of the service, or the only one."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(each) for each in children] if self.count > 1 else [self.pid]


@contextmanager
def _ours(count: int, flush: str) -> Iterator[Service]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        service = stack.enter_context(_Brokers(count, Path(folder) / "store", flush))
        ports = [service.port + STEP * number for number in range(count)]
        for port in ports:
            create_topic(port, TOPIC)
        yield Service(OURS if count == 1 else f"{OURS} x {count}", ports, service.brokers)


@contextmanager
def _apaches(flush: str) -> Iterator[Service]:
    with serving(REFERENCE, flush) as peer:
        yield Service(REFERENCE, [peer.port, peer.port], [peer.pid])


def _load(service: Service, **options: Any) -> dict[str, Any]:
    """All generators of one service at once; the sum of what they did."""
    pids = [{"pid": pid} for pid in service.pids] + [{}] * len(service.ports)
    asked = [
        partial(run_load, "send", port, topic=TOPIC, queues=QUEUES, **options, **pid)
        for port, pid in zip(service.ports, pids, strict=False)
    ]
    with ThreadPoolExecutor(len(asked)) as threads:
        found = [each.result() for each in [threads.submit(ask) for ask in asked]]
    return {
        "rate": sum(each["rate"] for each in found),
        "messages": sum(each["messages"] for each in found),
        "broker_cpu_s": sum(each.get("broker_cpu_s") or 0.0 for each in found),
        "p99_us": max(each["p99_us"] for each in found),
        "errors": sum(each["errors"] for each in found),
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--flush", type=names, default=("ASYNC_FLUSH",))
    parser.add_argument("--bodies", type=numbers, default=(128, 1024), help="body sizes in bytes")
    parser.add_argument("--windows", type=numbers, default=(64,), help="requests in flight on a connection")
    run = Run("brokers", __doc__, parser)
    options = run.options
    for flush in options.flush:
        with ExitStack() as stack:
            services = [stack.enter_context(_ours(count, flush)) for count in (1, 2)]
            try:
                services.append(stack.enter_context(_apaches(flush)))
            except PeerMissing as missing:
                print(f"{REFERENCE} is left out: {missing}", file=sys.stderr)
            for service in services:
                _load(service, window=256, count=options.warm_up)
            for body in options.bodies:
                for window in options.windows:
                    case = (flush.removesuffix("_FLUSH"), str(body), str(window))
                    load = partial(_load, body=body, window=window, seconds=options.seconds)
                    run.alternate(case, services, load)
    note = f"One connection to each broker, two to Apache's; {options.rounds} rounds of {options.seconds} s."
    run.keep(("flush", "bytes", "in flight"), MEASURES, note)


if __name__ == "__main__":
    main()
