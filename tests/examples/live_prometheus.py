"""A real Prometheus, as Debian's package has it, with the configuration of examples/monitoring."""

from __future__ import annotations

import json
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.apache import free_ports
from tests.interop.child import Child, scratch

PROGRAM: Final = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(PROGRAM is None, reason="needs Prometheus (Debian: apt install prometheus)")
_LIMIT_S: Final = 30


class LivePrometheus(Child):
    """Reads these targets while its context is entered.

    Args:
        folder: with prometheus.yml and rules.yml.
        targets: by job, the ports instead of those in the file.
        replaced: patterns in both files, and their replacements.
    """

    def __init__(
        self, folder: Path, targets: Mapping[str, Sequence[int]], replaced: Mapping[str, str] | None = None
    ) -> None:
        home = scratch("prometheus")
        for name in ("prometheus.yml", "rules.yml"):
            text = (folder / name).read_text()
            for pattern, replacement in (replaced or {}).items():
                text = re.sub(pattern, replacement, text)
            for job, ports in targets.items() if name == "prometheus.yml" else ():
                addresses = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
                text, count = re.subn(rf"(job_name: {job}\n.*\n.*targets: )\[.*\]", rf"\1[{addresses}]", text)
                assert count == 1, job
            (Path(home.name) / name).write_text(text)
        [port] = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        options = (
            f"--config.file={home.name}/prometheus.yml",
            f"--storage.tsdb.path={home.name}/data",
            f"--web.listen-address={self.address}",
        )
        super().__init__(home, [PROGRAM or "prometheus", *options])

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now; each has `metric` and `value`. Raises: HTTPError, it is none."""
        url = f"http://{self.address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=_LIMIT_S) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def number(self, expression: str) -> float:
        """The value of an expression with one series."""
        [series] = self.ask(expression)
        return float(series["value"][1])

    def alerts(self, state: str) -> set[tuple[str, ...]]:
        """The alerts of a state, "firing" or "pending": their names, and conditions if they have one."""
        found = self.ask(f'ALERTS{{alertstate="{state}"}}')
        names = ("alertname", "condition", "role")
        return {tuple(each["metric"][name] for name in names if name in each["metric"]) for each in found}

    def _wait_ready(self) -> None:
        self.wait_for("Server is ready to receive web requests")
