"""The example notebook, in the session that is here; and what it shows to whoever only opens it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("matplotlib")

from sparrowmq.spark.source.stream_source import HAS_LIMITS
from tools.notebook import play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[2] / "examples" / "flights.ipynb"


def cells():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def kinds(cells):
    """What the cells show, by kinds."""
    return [
        [sorted(shown.get("data", {"stream": ""})) for shown in cell["outputs"]]
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def test_whoever_opens_it_sees_its_plots():
    shown = kinds(cells())
    assert shown.count([["image/png"]]) == 2
    assert NOTEBOOK.stat().st_size < 100_000


@pytest.mark.timeout(240)
@pytest.mark.skipif(not HAS_LIMITS, reason="the pipeline `table` needs Spark 4.2")
@pytest.mark.slow
def test_it_runs_and_shows_what_it_kept(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    monkeypatch.syspath_prepend(NOTEBOOK.parent)  # as Jupyter does
    played = cells()
    play(played, {}, instead={"20_000": "2_000"})
    assert kinds(played) == kinds(cells())
    (batches,) = [cell for cell in played if "".join(cell["source"]).startswith("batches = []")]
    assert batches["outputs"][0]["data"]["text/plain"] == ["[(0, 2000)]"]
