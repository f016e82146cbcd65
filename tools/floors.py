"""The floors of the package, and a drawing of them that is made from what the modules really import.

    docs/understand/floors.svg   a box for each part, and a line to each part that it imports, always down

A part is a folder or a module right below the package. It imports its own modules and lower floors, never a part beside
it; `tests/test_tidy.py` sees to that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "sparrowmq"

FLOORS: Final = (
    {
        "core",
        "errors",
        "loop",
        "settings",
        "version",
    },
    {"kernel"},
    {"protocol", "filter"},
    {"store", "remoting", "auth"},
    {"metrics", "http2"},
    {"grpc"},
    {"namesrv", "broker", "client"},
    {"admin", "testing", "otel", "once", "schemas", "mqproxy"},
    {"sync", "console"},
    {"cli", "spark"},
)
FLOOR_OF: Final = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
# `mq.admin` is the one way up: a client loads the operator's part when a program first asks for it.
LATE_IMPORTS: Final = {("client/client.py", "admin"), ("client/blocking_client.py", "admin")}
# From left to right, so that few lines cross.
_ORDER: Final = (
    "kernel",
    "protocol",
    "filter",
    "store",
    "remoting",
    "auth",
    "metrics",
    "http2",
    "grpc",
    "broker",
    "namesrv",
    "client",
    "admin",
    "testing",
    "sync",
    "otel",
    "once",
    "schemas",
    "mqproxy",
    "console",
    "cli",
    "spark",
)

WIDTH: Final = 860
_STEP: Final = 92  # from floor to floor
_HEIGHT: Final = 44
_LEFT: Final = 30
_WIDTH: Final = 130


def part_of(file: Path) -> str:
    """The part that a file belongs to: `store` for sparrowmq/store/log/flush.py, `errors` for errors.py."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported(file: Path) -> list[tuple[int, str]]:
    """Each name of ours that a file imports, however it is written, with the line; without those of LATE_IMPORTS."""
    module_path = file.relative_to(PACKAGE).as_posix()
    here = ("sparrowmq", *file.relative_to(PACKAGE).with_suffix("").parts)
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            above = here[: len(here) - node.level] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            targets = [f"{module}.{alias.name}" for alias in node.names]
        found += [(node.lineno, target) for target in targets if _is_ours(module_path, target)]
    return found


def _is_ours(module_path: str, target: str) -> bool:
    package, *parts = target.split(".")
    return package == "sparrowmq" and (module_path, *parts[:1]) not in LATE_IMPORTS


def imported_parts(file: Path) -> Iterator[tuple[int, str]]:
    """Each part of the package that a file imports, with the line."""
    for line, target in imported(file):
        yield line, target.partition(".")[2].partition(".")[0]


def draw() -> str:
    """The drawing, as SVG."""
    uses: dict[str, set[str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        part = part_of(file)
        if part in FLOOR_OF:
            uses.setdefault(part, set()).update(other for _, other in imported_parts(file) if other != part)
    boxes = _boxes()
    height = _STEP * len(FLOORS) + 10
    drawn = [_arrow(boxes, part, other) for part in boxes for other in sorted(_shown(uses[part]))]
    drawn += [_box(part, place) for part, place in boxes.items()] + list(_ground())
    style = (
        "text{font-family:sans-serif;font-size:15px;fill:#1c2733}.n{font-size:11px;fill:#5b6b7a}"
        "rect{fill:#eef4fa;stroke:#40688c;rx:6}path{stroke:#40688c;stroke-width:1.3;fill:none;opacity:.55}"
    )
    marker = (
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<polygon points="0,0 8,4 0,8" fill="#40688c"/></marker></defs>'
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">'
    return "\n".join([head, f"<style>{style}</style>", marker, *drawn, "</svg>"]) + "\n"


def _shown(parts: set[str]) -> set[str]:
    """What lines are drawn to: everything stands on floor 0, so nothing is said by drawing that."""
    return {part for part in parts if FLOOR_OF[part] > 0}


Place = tuple[float, float, float]  # left, top, width


def _boxes() -> dict[str, Place]:
    """Where the boxes above floor 0 are."""
    places: dict[str, Place] = {}
    for floor, parts in enumerate(FLOORS[1:], 1):
        top = _STEP * (len(FLOORS) - 1 - floor) + 10
        row = sorted(parts, key=lambda part: _ORDER.index(part) if part in _ORDER else -1)
        gap = (WIDTH - _LEFT - len(row) * _WIDTH) / (len(row) + 1)
        for place, part in enumerate(row):
            places[part] = (_LEFT + gap + place * (_WIDTH + gap), top, _WIDTH)
    return places


def _box(part: str, place: Place) -> str:
    left, top, width = place
    return (
        f'<rect x="{left:.0f}" y="{top}" width="{width}" height="{_HEIGHT}"/>'
        f'<text x="{left + width / 2:.0f}" y="{top + 28}" text-anchor="middle">{escape(part)}</text>'
        f'<text x="4" y="{top + 27}" class="n">{FLOOR_OF[part]}</text>'
    )


def _ground() -> Iterator[str]:
    """Floor 0: one box for all of its small modules, on which everything stands."""
    top = _STEP * (len(FLOORS) - 1) + 10
    yield f'<rect x="{_LEFT}" y="{top}" width="{WIDTH - _LEFT - 4}" height="{_HEIGHT}"/>'
    yield f'<text x="4" y="{top + 27}" class="n">0</text>'
    names = " · ".join(sorted(FLOORS[0]))
    yield f'<text x="{(WIDTH + _LEFT) / 2:.0f}" y="{top + 27}" text-anchor="middle" class="n">{names}</text>'


def _arrow(boxes: dict[str, Place], part: str, other: str) -> str:
    """A line from the lower edge of a part to the upper edge of one that it imports."""
    left, top, width = boxes[part]
    below_left, below_top, below_width = boxes[other]
    others = sorted(boxes)
    begin = left + width * (others.index(other) + 1) / (len(others) + 1)
    end = below_left + below_width * (others.index(part) + 1) / (len(others) + 1)
    y1, y2 = top + _HEIGHT, below_top - 2
    curve = f"M{begin:.0f},{y1} C{begin:.0f},{y1 + 40} {end:.0f},{y2 - 40} {end:.0f},{y2}"
    return f'<path d="{curve}" marker-end="url(#a)"/>'
