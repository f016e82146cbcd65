"""Runs one way of one client: `python -m bench.clients MODULE WAY ADDRESS TOPIC MESSAGES PID`; prints its figures."""

from __future__ import annotations

import json
import sys
from importlib import import_module

from bench.clients.task import Task


def main() -> None:
    module, way, address, topic, messages, pid = sys.argv[1:]
    run = import_module(f"bench.clients.{module}").WAYS[way]
    print(json.dumps(run(Task(address, topic, int(messages), int(pid)))), flush=True)


if __name__ == "__main__":
    main()
