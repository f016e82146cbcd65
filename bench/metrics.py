"""What does it cost a broker to measure how long each request takes?

    ./run bench metrics [--quick] [--windows 1,64,256] [--rounds 60]

One broker, SEND_MESSAGE_V2 of 128 bytes, ASYNC_FLUSH. `slowRequestMillis` is switched while it runs: with 0 and without
/metrics nobody looks at a clock, with 1000, the default, every request is timed, counted in its histogram and looked at
whether it was slow. A round measures on, off, off, on for some quarter of a second each, so that what drifts counts for
both alike; the cost is the ratio of the two of one round. Neighbours on the machine only make a part slower, so the
quietest quarter of all parts is compared, too. CPU is that of the broker's loop alone (/proc/PID/schedstat).

Bound, by hand: a reading of the clock is 50 ns, a histogram's count as much. With one in flight that is 0.3 us of some
40; with 64 in flight a burst of some 30 sends shares it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from bench.load import run_load
from bench.rounds import Run, arguments, numbers
from bench.servers import QUEUES, TOPIC, Peer, serving
from tests.interop.wire import Wire

_UPDATE_BROKER_CONFIG: Final = 25
_OFF, _ON = 0, 1000
_ORDER: Final = (_ON, _OFF, _OFF, _ON)

Round = tuple[list[float], list[float]]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(rounds=60)
    parser.add_argument("--windows", type=numbers, default=(1, 64, 256), help="requests in flight")
    run = Run("metrics", __doc__, parser)
    rows = [
        "| in flight | CPU us/message | while measured | cost in % | half of the rounds | error | quietest quarter |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    with serving("ours") as peer:
        run_load("send", peer.port, topic=TOPIC, queues=QUEUES, window=256, count=run.options.warm_up)
        for window in run.options.windows:
            rounds = [_round(peer, window) for _ in range(run.options.rounds)]
            rows.append(_row(window, rounds))
            print(rows[-1], flush=True)
    run.keep_text("\n".join(rows) + f"\n\n{run.options.rounds} rounds.")


def _round(peer: Peer, window: int) -> Round:
    """Microseconds of the loop for a message, in the parts without and with measuring."""
    parts: dict[int, list[float]] = {_OFF: [], _ON: []}
    count = 6_000 if window == 1 else 40_000
    for millis in _ORDER:
        _switch(peer.port, millis)
        had_s = _loop_s(peer.pid)
        sent = run_load("send", peer.port, topic=TOPIC, queues=QUEUES, window=window, body=128, count=count)
        parts[millis].append((_loop_s(peer.pid) - had_s) / sent["messages"] * 1e6)
    return parts[_OFF], parts[_ON]


def _row(window: int, rounds: Sequence[Round]) -> str:
    """The median cost, between which values half of the rounds lie, and how far off the median may be (1.25 sigma)."""
    costs = [(sum(on) / sum(off) - 1) * 100 for off, on in rounds]
    low, _, high = quantiles(costs, n=4) if len(costs) > 1 else (costs[0],) * 3
    error = 1.25 * (high - low) / 1.35 / len(costs) ** 0.5
    off, on = [[part for each in rounds for part in each[which]] for which in (0, 1)]
    quietest = (quantiles(on, n=4)[0] / quantiles(off, n=4)[0] - 1) * 100
    return (
        f"| {window} | {median(off):.2f} | {median(on):.2f} | {median(costs):+.2f} | {low:+.2f}..{high:+.2f} "
        f"| ±{error:.2f} | {quietest:+.2f} |"
    )


def _switch(port: int, millis: int) -> None:
    with Wire(port) as wire:
        reply = wire.ask(_UPDATE_BROKER_CONFIG, {}, f"slowRequestMillis={millis}\n".encode())
    if reply.code:
        raise RuntimeError(f"the broker at {port} does not switch: {reply.code} {reply.remark}")


def _loop_s(pid: int) -> float:
    """The seconds of CPU that a process's first thread has had."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    main()
