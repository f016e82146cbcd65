"""Visits of a cluster's metrics, as Prometheus makes them."""

import asyncio
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from sparrowmq.metrics.metrics_settings import Exporter

ON: dict[str, Any] = {"metrics": Exporter.PROM, "metrics_port": 0}
Samples = dict[str, dict[tuple[str, ...], float]]


async def visit(address: str, path: str) -> tuple[int, str]:
    """The status and the text."""

    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(ask)


async def samples(address: str, *labels: str, path: str = "/metrics") -> Samples:
    """Each metric's values, by those of its labels that are named, where it has them."""
    status, text = await visit(address, path)
    assert status == 200, text
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = tuple(sample.labels[label] for label in labels if label in sample.labels)
            found.setdefault(sample.name, {})[key] = sample.value
    return found
