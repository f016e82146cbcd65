"""Keeps what was measured: rounds of figures in, one section of RESULTS.md out, the rest of the page untouched."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.servers import REFERENCE
from sparrowmq import kernel

PAGE: Final = Path(__file__).with_name("RESULTS.md")
_HEAD: Final = """# Benchmark results

Each section is written by `./run bench NAME`, which says in its docstring how it measures and what bound to expect.
Figures are medians over rounds that alternate between the brokers, with the smallest and largest in brackets;
ratios are against Apache RocketMQ 4.9.7 in the same run.
"""

Round = Mapping[str, Any]
Figures = Mapping[tuple[str, ...], Mapping[str, Sequence[Round]]]  # case -> peer -> rounds


@dataclass(frozen=True)
class Measure:
    """A column of the table; with `compared`, another beside it has the ratio to the reference."""

    name: str
    value: Callable[[Round], float]
    compared: bool = True


def table(heads: Sequence[str], figures: Figures, measures: Sequence[Measure]) -> str:
    """A row for each case and peer."""
    columns = [*heads, "broker"]
    for measure in measures:
        columns += [measure.name, "ratio"] if measure.compared else [measure.name]
    lines = [row(columns), row(["---"] * len(columns))]
    for case, peers in figures.items():
        for peer, rounds in peers.items():
            cells = [*case, peer]
            for measure in measures:
                cells += _cells(measure, rounds, peers.get(REFERENCE, ()))
            lines.append(row(cells))
    return "\n".join(lines)


def _cells(measure: Measure, rounds: Sequence[Round], reference: Sequence[Round]) -> list[str]:
    values = [measure.value(figures) for figures in rounds]
    if not measure.compared:
        return [spread(values)]
    against = median(measure.value(figures) for figures in reference) if reference else 0
    return [spread(values), f"{median(values) / against:.2f}" if against else ""]


def keep_section(name: str, question: str, text: str) -> None:
    """Replace or add the section of one benchmark, with the machine and the commit it was measured on."""
    section = f"<!-- {name} -->\n## {question}\n\n{circumstances()}\n\n{text.strip()}\n<!-- end of {name} -->\n"
    page = PAGE.read_text() if PAGE.exists() else _HEAD
    old = re.compile(rf"<!-- {name} -->\n.*?<!-- end of {name} -->\n", re.DOTALL)
    page = old.sub(lambda _match: section, page) if old.search(page) else f"{page}\n{section}"
    PAGE.write_text(page)
    print(section, flush=True)


def circumstances() -> str:
    """Day, commit, machine and versions, in one line."""
    commit = _said("git", "rev-parse", "--short", "HEAD")
    changed = " with changes" if _said("git", "status", "--porcelain", "--", "sparrowmq", "bench") else ""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    java = re.search(r'version "([^"]+)"', _said("java", "-version"))
    form = "compiled" if kernel.is_compiled() else "plain"
    versions = f"Python {platform.python_version()} (our kernel {form}), Java {java[1] if java else 'absent'}"
    machine = f"{os.cpu_count()} cores ({_cpu()}), {memory_gib:.0f} GiB, {platform.system()}"
    busy = f"load average at the end {os.getloadavg()[0]:.1f}"
    lines = (f"{date.today().isoformat()}, commit {commit}{changed}; {machine};", f"{versions}; {busy}.")
    return "\n".join(lines)


def _cpu() -> str:
    if sys.platform != "linux":
        return platform.processor()
    names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return names[0] if names else platform.machine()


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=PAGE.parent)
    except FileNotFoundError:
        return ""
    return (done.stdout + done.stderr).strip()


def spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return _short(values[0])
    return f"{_short(median(values))} ({_short(min(values))}..{_short(max(values))})"


def _short(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
