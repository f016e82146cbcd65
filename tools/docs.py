"""The pages of the site that are made from the code when it is built (site.py), and are not committed.

    operate/all-metrics.md     each metric of the programs (metrics_page.py)
    operate/configuration.md   each setting of the servers (settings.py)
    understand/coverage.md     each capability of tools/seeds.toml, and its tests
    understand/floors.svg      the parts of the package, and which imports which (floors.py)
    understand/interop.md      what works between which client and which broker (matrix.py)
    understand/requests.md     each request of the protocol: its code, header, reply and server, or why it has none

Tests are read, not run: marks are found in the syntax tree, so a page does not depend on what a machine can run.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from tools.floors import draw
from tools.marks import marks_of
from tools.matrix import page, read_cells, read_matrix
from tools.metrics_page import metrics_page
from tools.settings import settings_page

ROOT = Path(__file__).parents[1]
SEEDS = Path(__file__).with_name("seeds.toml")
UNSHOWN = "unshown"


def generated_pages() -> dict[str, str]:
    """The text of each generated page by its path below docs/. Raises: BadCoverage, BadCell."""
    return {
        "operate/all-metrics.md": metrics_page(),
        "operate/configuration.md": settings_page(),
        "understand/coverage.md": coverage(read_seeds(), read_marks(ROOT / "tests"), read_unshown()),
        "understand/floors.svg": draw(),
        "understand/interop.md": page(read_matrix(), read_cells(ROOT / "tests")),
        "understand/requests.md": requests(),
    }


class BadCoverage(Exception):
    """The marks of the tests and seeds.toml do not fit: an id that is unknown, or that no test shows."""


# --- coverage


def read_seeds(path: Path = SEEDS) -> dict[str, dict[str, str]]:
    """Capabilities by title of their area, then by id."""
    areas = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        area["title"]: {f"S-{name}-{number}": text for number, text in area.items() if number != "title"}
        for name, area in areas.items()
        if name != UNSHOWN
    }


def read_unshown(path: Path = SEEDS) -> dict[str, str]:
    """The capabilities that no test need show yet, by id, and why."""
    return dict(tomllib.loads(path.read_text(encoding="utf-8")).get(UNSHOWN, {}))


def read_marks(folder: Path) -> dict[str, list[str]]:
    """For each id the tests marked with it, as `path::name`; just `path` when the whole file is marked."""
    found: dict[str, list[str]] = {}
    for file in sorted(folder.rglob("test_*.py")):
        path = file.relative_to(folder.parent).as_posix()
        text = file.read_text(encoding="utf-8")
        if "mark.covers(" not in text:
            continue
        for scope, name, call in marks_of(ast.parse(text, str(file))):
            for seed in map(ast.literal_eval, call.args if name == "covers" else ()):
                place = "::".join((path, *scope))
                if place not in found.setdefault(seed, []):
                    found[seed].append(place)
    return found


def coverage(
    seeds: Mapping[str, Mapping[str, str]],
    tests: Mapping[str, list[str]],
    unshown: Mapping[str, str],
) -> str:
    """docs/understand/coverage.md. Raises: BadCoverage."""
    known = {seed for area in seeds.values() for seed in area}
    if problems := list(misfits(known, tests, unshown)):
        raise BadCoverage("\n".join(problems))
    lines = [
        "# Capabilities and their tests\n",
        "This page lists what SparrowMQ can do, and the tests that show each capability.",
        "Paths are below `tests/`.",
    ]
    for title, area in seeds.items():
        lines += [f"\n## {title}\n", "| id | capability | tests |", "|---|---|---|"]
        for seed, text in area.items():
            listed = "<br>".join(f"`{place.removeprefix('tests/')}`" for place in sorted(tests.get(seed, [])))
            lines.append(f"| {seed} | {cell(text)} | {listed or 'not yet: ' + cell(unshown[seed])} |")
    return "\n".join(lines) + "\n"


def misfits(known: Set[str], tests: Mapping[str, list[str]], unshown: Mapping[str, str]) -> Iterator[str]:
    """What is wrong between the capabilities, the marks of the tests and the list of what is not shown yet."""
    for seed in sorted(tests.keys() - known):
        yield f"{seed} is no capability of tools/seeds.toml, but the mark of {', '.join(tests[seed])}"
    for seed in sorted(known - tests.keys() - unshown.keys()):
        yield f"no test shows {seed}: mark one with it, or say in tools/seeds.toml under [{UNSHOWN}] why there is none"
    for seed in sorted(unshown.keys() - known):
        yield f"{seed} under [{UNSHOWN}] of tools/seeds.toml is no capability"
    for seed in sorted(unshown.keys() & tests.keys()):
        yield f"{tests[seed][0]} shows {seed} now: take it off [{UNSHOWN}] in tools/seeds.toml"


# --- requests


def requests() -> str:
    from sparrowmq.protocol.requests.request_table import ROWS, Role

    served = sum(not row.unserved for row in ROWS)
    lines = [
        "# Requests\n",
        "This page lists every request of the RocketMQ protocol, for authors of clients and tools.",
        f"SparrowMQ serves {served} of the {len(ROWS)}; the others have a reason in the column `served by`.\n",
        "- **header** and **reply** are classes of `sparrowmq/protocol/requests/`, which have the fields.",
        "- **access** is the permission that an account needs with `aclEnable=true`.",
        "  `read` and `write` hold for the named topic or group (SUB, PUB), `client` needs any account.",
        "  `admin` and `cluster` need an administrator ([Security](../operate/security.md)).",
        "\n| code | name | header | reply | served by | access |",
        "|---:|---|---|---|---|---|",
    ]
    names = {Role.NAMESRV: "name server", Role.BROKER: "broker", Role.CLIENT: "client"}
    for row in sorted(ROWS, key=lambda row: int(row.code)):
        header = f"`{row.header.__name__}`" if row.header else ""
        reply = f"`{row.reply.__name__}`" if row.reply and row.reply.__struct_fields__ else ""
        by = row.unserved or ", ".join(name for role, name in names.items() if role in row.served_by)
        of = " and ".join(f"`{field}`" for field in (row.topic, row.group) if field)
        access = "" if row.unserved else f"{row.access.value} of {of}" if of else row.access.value
        lines.append(f"| {int(row.code)} | {row.code.name} | {header} | {reply} | {cell(by)} | {access} |")
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    return text.replace("|", "\\|")
