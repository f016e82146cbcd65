"""What do access control, quotas and TLS cost a broker for each message that it takes?

    ./run bench acl [--quick] [--peers ours,ours+acl,ours+quotas] [--bodies 128] [--windows 1,64,256]

As `./run bench send`, with ASYNC_FLUSH; the generator signs each message, or encrypts the connection, in C. Ours
without either takes its turn in the same rounds, and the sentence below the table has what both cost by the medians.

Bound, by hand: HMAC-SHA1 of 250 bytes are 6 blocks of SHA-1, 0.3 us with the instructions for it, and about 1 us as
OpenSSL is called from Python. To bring the signed values in their order takes half a microsecond. Among all else that a
broker does for a message, whose code and data compete for the caches, both take twice as long.
"""

from __future__ import annotations

from statistics import median
from typing import Final

from bench.rounds import Run, arguments, numbers
from bench.send import MEASURES, measure_sends
from bench.servers import ACL, OURS, QUOTAS, REFERENCE, TLS

CPU: Final = MEASURES[1]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(peers=(OURS, OURS + QUOTAS, *(name + way for way in (ACL, TLS) for name in (OURS, REFERENCE))))
    parser.add_argument("--bodies", type=numbers, default=(128,), help="body sizes in bytes")
    parser.add_argument("--windows", type=numbers, default=(1, 64, 256), help="requests in flight")
    run = Run("acl", __doc__, parser)
    measure_sends(run, "ASYNC_FLUSH", "window", run.options.windows)
    run.keep(("flush", "bytes", "in flight"), MEASURES, f"{_worth(run)} {run.options.rounds} rounds.")


def _worth(run: Run) -> str:
    said = []
    for way, what in ((ACL, "signed"), (QUOTAS, "with quotas"), (TLS, "by TLS")):
        times = [
            f"{median(map(CPU.value, peers[OURS + way])) / median(map(CPU.value, peers[OURS])):.2f}"
            for peers in run.figures.values()
            if peers.keys() >= {OURS, OURS + way}
        ]
        if times:
            said.append(f"{what} {', '.join(times)}")
    return f"Times the CPU of a plain message, in the order of the table: {'; '.join(said) or 'not measured'}."


if __name__ == "__main__":
    main()
