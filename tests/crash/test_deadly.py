"""A program of ours dies at the crash point that it was told, and names all that it met."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.crash.deadly import Deaths

ROOT = Path(__file__).parents[2]


def lives(points: Path, point: str, count: int, *arguments: str) -> int:
    command = [sys.executable, "-m", "tests.crash.deadly", str(points), point, str(count), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60).returncode


def test_a_command_dies_at_its_point(tmp_path: Path):
    store, points = tmp_path / "store", tmp_path / "points"
    (store / "commitlog").mkdir(parents=True)
    arguments = ("store", "repair", str(store))
    assert lives(points, "", 1, *arguments) == 0
    met = points.read_text().splitlines()
    assert len(met) == len(set(met)) > 10
    write = next(point for point in met if "pwrite half" in point)
    assert lives(points, write, 1, *arguments) == -signal.SIGKILL


def test_of_several_times_at_a_point_one_is_the_last(tmp_path: Path, monkeypatch):
    died: list[int] = []
    monkeypatch.setattr(Deaths, "die", staticmethod(lambda: died.append(1)))
    deaths = Deaths(str(tmp_path / "points"), "here", 3)
    for point in ("here", "there", "here"):
        deaths.meet(point)
    assert not died and (tmp_path / "points").read_text() == "here\nthere\n"
    deaths.meet("here")
    assert died
