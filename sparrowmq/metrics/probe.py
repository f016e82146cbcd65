"""The health check of containers: `python -m sparrowmq.metrics.probe [--ready] [PORT]`, with 5557 as the port.

Without --ready it asks /healthz: the exit status is 1 if the event loop does not answer, and 0 if the server has no
such port (`metricsExporterType=PROM`). With --ready it asks /readyz, and the status is 0 only if the server can do its
work. The answer of the server is printed, as `docker inspect` shows it.
"""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request
from typing import Final

_LIMIT_S: Final = 4.0
_NO_PORT: Final = "no answer at port {}: the server needs metricsExporterType=PROM"


def probe(port: int, *, ready: bool) -> tuple[int, str]:
    """Return the exit status, and what the server says."""
    try:
        url = f"http://127.0.0.1:{port}/{'readyz' if ready else 'healthz'}"
        with urllib.request.urlopen(url, timeout=_LIMIT_S) as answer:
            return 0, answer.read().decode()
    except urllib.error.HTTPError as error:
        return 1, error.read().decode()
    except OSError as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ConnectionRefusedError):
            return int(ready), _NO_PORT.format(port)
        return 1, f"no answer within {_LIMIT_S:g} s"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sparrowmq.metrics.probe")
    parser.add_argument("--ready", action="store_true", help="ask whether the server can do its work")
    parser.add_argument("port", nargs="?", type=int, default=5557)
    arguments = parser.parse_args()
    status, text = probe(arguments.port, ready=arguments.ready)
    sys.stdout.write(f"{text.strip()}\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
