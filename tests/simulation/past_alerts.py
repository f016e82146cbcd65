"""The alerts that the rules of examples/monitoring would have raised over metrics of the past.

    a file of OpenMetrics ── promtool ── blocks ── Prometheus ── query_range of each rule

A Prometheus does not evaluate alerts in the past. So each expression is asked at each evaluation, and an alert fires
where its series was there for as long as `for` says. A sample counts until the next scrape, because series that
vanish from a scrape vanish at once.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.interop.apache import free_ports
from tests.interop.child import Child, scratch

SCRAPE_S: Final = 15
RULES: Final = Path(__file__).parents[2] / "examples" / "monitoring" / "rules.yml"
PROMTOOL: Final = shutil.which("promtool")
PROMETHEUS: Final = shutil.which("prometheus")
_PIECE_S: Final = 10_000 * SCRAPE_S  # a query has at most 11,000 steps
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600}
_LIMIT_S: Final = 300
_SELECTOR: Final = re.compile(r"\b([a-z_]{2,})\b(\{[^}]*\})?")
_MATCHER: Final = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Past:
    """An alert of the past.

    Attributes:
        begin: when its expression began to be true, in seconds of Unix time.
    """

    name: str
    labels: dict[str, str]
    begin: float
    length_s: float
    is_firing: bool

    def __str__(self) -> str:
        state = "firing" if self.is_firing else "pending"
        return f"alert: {self.name} {state}, from {self.begin:.0f} for {self.length_s:.0f} s: {self.labels}"


class Wanted:
    """Chooses the series that the rules read, by the selectors in their expressions."""

    def __init__(self) -> None:
        self._selectors: dict[str, list[list[tuple[str, str, str]]]] = {}
        for rule in _rules():
            for name, matchers in _SELECTOR.findall(rule["expr"]):
                self._selectors.setdefault(name, []).append(_MATCHER.findall(matchers))

    def has(self, name: str, labels: str) -> bool:
        """Return whether a rule reads a series."""
        if name not in self._selectors:
            return False
        values = dict(_LABEL.findall(labels))
        return any(
            all(
                (re.fullmatch(text, values.get(label, "")) is not None) == (sign == "=~")
                if "~" in sign
                else (values.get(label, "") == text) == (sign == "=")
                for label, sign, text in matchers
            )
            for matchers in self._selectors[name]
        )


def labelled(page: str, job: str, instance: str, at: float) -> Iterator[tuple[str, str, str]]:
    """Yield name, labels, and value with time of each sample that a Prometheus takes of a page of metrics."""
    labels = f'job="{job}",instance="{instance}"'
    for line in page.splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            name, _, own = series.rstrip("}").partition("{")
            yield name, f"{labels},{own}" if own else labels, f"{value} {at:.3f}"


def pasts(metrics: Path, begin: float, hours: float) -> list[Past]:
    """Return the alerts of so many hours."""
    data = metrics.parent / "data"
    words = ("tsdb", "create-blocks-from", "openmetrics", "-q", str(metrics), str(data))
    subprocess.run([PROMTOOL or "promtool", *words], check=True, capture_output=True)
    with _Reading(data) as prometheus:
        return [past for rule in _rules() for past in prometheus.pasts(rule, begin, begin + 3600 * hours)]


def runs(times: list[float], step_s: float) -> list[tuple[float, float]]:
    """Return begin and length of each row of times without a gap."""
    found: list[tuple[float, float]] = []
    for at in times:
        if found and at - sum(found[-1]) <= step_s:
            found[-1] = found[-1][0], at - found[-1][0]
        else:
            found.append((at, 0.0))
    return found


class _Reading(Child):
    """A Prometheus that scrapes nothing."""

    def __init__(self, data: Path) -> None:
        home = scratch("prometheus")
        config = Path(home.name) / "prometheus.yml"
        config.write_text("")
        [port] = free_ports(1)
        self._address = f"127.0.0.1:{port}"
        options = (
            f"--config.file={config}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=10y",
            f"--query.lookback-delta={SCRAPE_S + 1}s",
            f"--web.listen-address={self._address}",
        )
        super().__init__(home, [PROMETHEUS or "prometheus", *options])

    def pasts(self, rule: dict[str, Any], begin: float, end: float) -> list[Past]:
        """Return the alerts of a rule."""
        text = str(rule.get("for", "0s"))
        for_s = int(text[:-1]) * _UNITS_S[text[-1]]
        times: dict[str, list[float]] = {}
        while begin < end:
            for each in self._ask(rule["expr"], begin, min(end, begin + _PIECE_S)):
                labels = json.dumps({name: value for name, value in each["metric"].items() if name != "__name__"})
                times.setdefault(labels, []).extend(float(at) for at, _ in each["values"])
            begin += _PIECE_S + SCRAPE_S
        return [
            Past(rule["alert"], json.loads(labels), at, length_s, length_s >= for_s)
            for labels, each in times.items()
            for at, length_s in runs(each, SCRAPE_S)
        ]

    def _ask(self, expression: str, begin: float, end: float) -> list[dict[str, Any]]:
        fields = {"query": expression, "start": begin, "end": end, "step": SCRAPE_S}
        url = f"http://{self._address}/api/v1/query_range?{urllib.parse.urlencode(fields)}"
        with urllib.request.urlopen(url, timeout=_LIMIT_S) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def _wait_ready(self) -> None:
        self.wait_for("Server is ready to receive web requests")


def _rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    return found
