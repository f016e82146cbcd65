"""How many messages a second do Python's clients send and consume, ours beside those of Kafka, NATS and Redis?

    ./run bench peers [--quick] [--messages 200000] [--rounds 5] [--peers ours,aiokafka] [--fill-cache GIB]

Each client has a server of its own on this machine, and all servers run for the whole session. Rounds alternate
between the clients; a first round warms the servers up and does not count. A client is one process with bodies of 128
bytes, and one topic: of 4 queues or partitions for ours and Kafka, one stream for NATS and Redis. Modules in
bench/clients have the ways, which are those that each client's documents advise for throughput.

send pipelined       every message has its own result, which is looked at; the clock stops when the last one is there
send in turn         one fortieth as many messages, each sent when the one before is acknowledged
consume one by one   a new group from the beginning of the topic; a loop that settles each message. redis-py has no such
                     way, for it fetches nothing ahead
consume batches      the same, by up to 1,000 messages

The clock of consumers runs from a fifth of the messages on, when all is under way.

An acknowledged message is in the memory of the operating system and comes to the disk later: ours with ASYNC_FLUSH
within half a second, Redis (`appendfsync everysec`) within a second, JetStream's file storage within two minutes,
Kafka's (acks=all, one replica) when the system likes. Only "ours (SYNC_FLUSH)" has it on the disk, for information.

CPU of a client is its whole process's, threads in C included; CPU of a server is that of its process meanwhile. The
peers' clients come from requirements/peers.txt into an environment of their own. A peer that this machine does not
have is left out, and the section says why.

Bound: our broker stores a batch at 2.2 us a message and serves a pull at less; what Python spends on a message decides.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.clients.task import BATCHES, IN_TURN, LIMIT_S, ONE_BY_ONE, PIPELINED, Figures
from bench.kafka import KafkaBroker
from bench.page_cache import PageCache, add_option
from bench.ranks import Ranking, Serving, page
from bench.results import keep_section
from bench.rivals import NatsServer, RedisServer, redis_version
from bench.rounds import names
from bench.servers import OURS, TOPIC, serving
from bench.usage import memory
from tests.interop.kits import NATS_VERSION, PEERS_LOCK, PeerMissing, python_peers

WAYS: Final = (PIPELINED, IN_TURN, ONE_BY_ONE, BATCHES)
IN_TURN_SHARE: Final = 40
CLIENTS: Final = ("aiokafka", "confluent-kafka", "hiredis", "nats-py", "redis")


@dataclass(frozen=True)
class Server:
    """Where a server is, and its process."""

    address: str
    pid: int


@dataclass(frozen=True)
class Contender:
    """A client: its module in bench/clients, the Python that has it, its server, and how safe a message is there."""

    name: str
    module: str
    python: Callable[[], Path]
    serve: Callable[[], AbstractContextManager[Server]]
    safety: str
    ways: Sequence[str] = WAYS


@contextmanager
def _ours(flush: str) -> Iterator[Server]:
    with serving(OURS, flush) as broker:
        yield Server(broker.namesrv, broker.pid)


@contextmanager
def _of(kind: type[KafkaBroker | NatsServer | RedisServer]) -> Iterator[Server]:
    with kind() as server:
        yield Server(server.address, server.pid)


def _this_python() -> Path:
    return Path(sys.executable)


_KAFKA: Final = "Kafka 3.9.1, acks=all"
_REDIS: Final = "Redis, appendfsync everysec"
_BATCHED: Final = (PIPELINED, IN_TURN, BATCHES)

CONTENDERS: Final = (
    Contender(OURS, "ours", _this_python, partial(_ours, "ASYNC_FLUSH"), "SparrowMQ, ASYNC_FLUSH"),
    Contender("confluent-kafka", "confluent", python_peers, partial(_of, KafkaBroker), _KAFKA),
    Contender("aiokafka", "aio_kafka", python_peers, partial(_of, KafkaBroker), _KAFKA),
    Contender("nats-py", "jetstream", python_peers, partial(_of, NatsServer), f"NATS {NATS_VERSION}, file storage"),
    Contender("redis-py", "redis_streams", python_peers, partial(_of, RedisServer), _REDIS, _BATCHED),
    Contender(f"{OURS} (SYNC_FLUSH)", "ours", _this_python, partial(_ours, "SYNC_FLUSH"), "SparrowMQ, SYNC_FLUSH"),
)


@dataclass(frozen=True)
class Running:
    """A contender whose server is up."""

    contender: Contender
    server: Server
    idle_mib: float

    def run(self, way: str, messages: int) -> Figures:
        """One way, in a process of its own. Raises: RuntimeError with what that wrote."""
        count = messages // IN_TURN_SHARE if way == IN_TURN else messages
        given = [way, self.server.address, TOPIC, str(count), str(self.server.pid)]
        command = [str(self.contender.python()), "-m", "bench.clients", self.contender.module, *given]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * LIMIT_S, cwd=Path(__file__).parents[1]
        )
        with suppress(IndexError, json.JSONDecodeError):
            found: Figures = json.loads(done.stdout.splitlines()[-1])
            return found
        said = f"{done.stdout}{done.stderr}"
        raise RuntimeError(f"{self.contender.name}, {way}, ended with {done.returncode}:\n{said}")


def main() -> None:
    options = _options()
    with ExitStack() as stack:
        running, missing = _start(options.peers, stack)
        cache = PageCache(options.fill_cache)
        figures = measure(running, options.messages, options.rounds, cache, warm_ups=0 if options.quick else 1)
        servers = {
            each.contender.name: Serving(each.contender.safety, each.idle_mib, memory(each.server.pid).resident)
            for each in running
        }
    text = page(figures, servers, [_note(options), *missing])
    if options.quick:
        print(text)
    else:
        keep_section("peers", (__doc__ or "").splitlines()[0], text)


def _note(options: argparse.Namespace) -> str:
    locked = re.findall(r"(?m)^([\w.-]+)==(\S+)", PEERS_LOCK.read_text())
    clients = ", ".join(f"{name} {version}" for name, version in locked if name in CLIENTS)
    with suppress(PeerMissing):
        clients += f"; server of Redis {redis_version()}"
    in_turn = options.messages // IN_TURN_SHARE
    rounds = f"Rounds: {options.rounds} of {options.messages:,} messages, {in_turn:,} in turn."
    if options.fill_cache:
        rounds += f" Before each measurement {options.fill_cache} GiB filled the page cache (bench/page_cache.py)."
    return f"{rounds} Versions: {clients}."


def measure(running: Sequence[Running], messages: int, rounds: int, cache: PageCache, warm_ups: int) -> Ranking:
    """The rounds of each way and client; those that warm up are left out."""
    figures: dict[str, dict[str, list[Figures]]] = defaultdict(lambda: defaultdict(list))
    for number in range(-warm_ups, rounds):
        for way in WAYS:
            for each in (each for each in running if way in each.contender.ways):
                cache.fill()
                found = each.run(way, messages)
                print(f"{way:16} {each.contender.name:18} {_shown(found)}", flush=True)
                if number >= 0:
                    figures[way][each.contender.name].append(found)
    return figures


def _shown(found: Figures) -> str:
    return f"{found['rate']:10,.0f}/s {found['cpu_us']:6.1f} us here, {found['server_us']:6.1f} us at the server"


def _start(wanted: Sequence[str], stack: ExitStack) -> tuple[list[Running], list[str]]:
    """Start the servers; a sentence for each contender that this machine cannot run."""
    running, missing = [], []
    for contender in CONTENDERS:
        if contender.name not in wanted:
            continue
        try:
            contender.python()
            server = stack.enter_context(contender.serve())
        except PeerMissing as reason:
            missing.append(f"{contender.name} is left out: {reason}.")
            print(missing[-1], file=sys.stderr)
        else:
            running.append(Running(contender, server, memory(server.pid).resident))
    return running, missing


def _options() -> argparse.Namespace:
    known = [contender.name for contender in CONTENDERS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", type=names, default=known, help="clients to measure: a,b,c")
    parser.add_argument("--quick", action="store_true", help="one short round, shown and not kept")
    add_option(parser)
    options = parser.parse_args()
    if unknown := [name for name in options.peers if name not in known]:
        parser.error(f"no client {', '.join(unknown)}; there are {', '.join(known)}")
    if options.quick:
        options.rounds, options.messages = 1, 20_000
    return options


if __name__ == "__main__":
    main()
