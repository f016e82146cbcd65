"""`./run fuzz --kernel [--minutes N]`: search for bytes that lead the compiled kernel out of its memory.

    inputs ── one is changed ──> target ──> edges taken (coverage.c) ── new ones? ──> it is one of the inputs
                                    └── AddressSanitizer or UBSan stops the process: the input is a finding

The kernel is built with both sanitizers and a call in each block of code, so the search keeps what leads somewhere new,
as AFL and libFuzzer do; neither needs to be here, gcc is enough. Each target (targets.py) has a process of its own.
corpus/ keeps the inputs of former searches; `--keep` adds those of this one that reach more.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt

from sparrowmq import kernel

ROOT: Final = Path(__file__).parents[2]
CORPUS: Final = Path(__file__).parent / "corpus"
EDGES: Final = 1 << 16
TARGETS: Final = ("records", "columns", "batches", "headers", "http2", "frames")
PROCESSES: Final = 2
MAX_BYTES: Final = 4096
_MAX_KEPT_BYTES: Final = 600
_SPECIAL: Final = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_BUCKETS: Final = np.array([0, 1, 2, 4] + [8] * 4 + [16] * 8 + [32] * 16 + [64] * 96 + [128] * 128, np.uint8)


def runtime() -> str | None:
    """The library of gcc's AddressSanitizer; None where there is none."""
    try:
        found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    except OSError:
        return None
    return found if os.path.isabs(found) else None


def build(folder: Path) -> None:
    """Build the kernel and the counts of its edges into a folder. Raises: CalledProcessError."""
    subprocess.run([sys.executable, "-m", "tools.kernel", "--sanitize", str(folder), "--cover"], cwd=ROOT, check=True)
    source = str(Path(__file__).parent / "coverage.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(folder / "coverage.so"), source], check=True)


def environment(folder: Path) -> dict[str, str]:
    """The environment of a process that loads the kernel of this folder."""
    clean = {name: value for name, value in os.environ.items() if name != kernel.VARIABLE}
    options = {"ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc", "PYTHONPATH": str(ROOT)}
    return clean | options | {"LD_PRELOAD": f"{runtime()} {folder / 'coverage.so'}"}


def search(folder: Path, name: str, seconds: float, seed: int, *, keep: bool = False) -> str | None:
    """Search with one target. Returns what was found, or None."""
    words = [sys.executable, "-m", "tests.kernel.fuzzing", "--worker", name, "--folder", str(folder)]
    words += ["--seconds", str(seconds), "--seed", str(seed), *(["--keep"] if keep else [])]
    done = subprocess.run(words, cwd=ROOT, env=environment(folder), capture_output=True, text=True)
    print(done.stdout, end="", flush=True)
    if done.returncode == 0:
        return None
    last = folder / f"{name}.last"
    tried = base64.b64encode(last.read_bytes()).decode() if last.exists() else "none"
    return f"{name}, input {tried}:\n{done.stderr[-4000:]}"


def search_all(seed: int, seconds: float, *, keep: bool = False) -> list[str]:
    """Search with all targets, for so long in all. Returns what was found."""
    if runtime() is None:
        return ["gcc's AddressSanitizer is not here"]
    with tempfile.TemporaryDirectory(prefix="sparrowmq-fuzz-") as folder, ThreadPoolExecutor(PROCESSES) as pool:
        build(Path(folder))
        share = seconds * PROCESSES / len(TARGETS)
        searches = [pool.submit(search, Path(folder), name, share, seed, keep=keep) for name in TARGETS]
        return [found for each in searches if (found := each.result()) is not None]


def kept(name: str) -> list[bytes]:
    """The inputs of former searches."""
    path = CORPUS / f"{name}.txt"
    return [base64.b64decode(line) for line in path.read_text().split()] if path.exists() else []


class Search:
    """One target's search, in the process that loads the sanitized kernel."""

    def __init__(self, folder: Path, name: str, seed: int) -> None:
        kernel.__path__.insert(0, str(folder))
        from tests.kernel import cases, targets

        self._target, self._outcome = targets.TARGETS[name], cases.outcome
        self._random = Random(seed)
        self._last = folder / f"{name}.last"
        library = ctypes.CDLL(str(folder / "coverage.so"))
        counts = (ctypes.c_uint8 * EDGES).in_dll(library, "edges")
        self._counts: npt.NDArray[np.uint8] = np.ctypeslib.as_array(counts)
        self._seen = np.zeros(EDGES, np.uint8)
        self.runs = 0
        self.inputs: list[bytes] = []
        for data in (*targets.seeds(name), *kept(name)):
            self.try_input(data[:MAX_BYTES])

    @property
    def edge_count(self) -> int:
        return int(np.count_nonzero(self._seen))

    def try_input(self, data: bytes) -> None:
        """Run the target. The input is kept if it takes an edge that none took before, or more often."""
        self._last.write_bytes(data)
        self._counts[:] = 0
        self._outcome(lambda: self._target(data))
        self.runs += 1
        found = _BUCKETS[self._counts]
        if (found & ~self._seen).any():
            self._seen |= found
            self.inputs.append(data)

    def step(self) -> None:
        """Try one changed input."""
        random = self._random
        data = bytearray(random.choice(self.inputs))
        for _ in range(1 << random.randrange(4)):
            at = random.randrange(len(data) + 1)
            match random.randrange(7):
                case 0 if data:
                    data[at % len(data)] ^= 1 << random.randrange(8)
                case 1:
                    size = random.choice((1, 2, 4))
                    data[at : at + size] = (random.choice(_SPECIAL) & (1 << 8 * size) - 1).to_bytes(size, "big")
                case 2:
                    del data[at : at + random.choice((1, 2, 4, 30))]
                case 3:
                    data[at:at] = random.randbytes(random.choice((1, 2, 4)))
                case 4:
                    data[at:at] = data[: random.randrange(64)]
                case 5:
                    other = random.choice(self.inputs)
                    begin = random.randrange(len(other) + 1)
                    data[at:] = other[begin:]
                case _ if data:
                    data[at % len(data)] = random.randrange(256)
        self.try_input(bytes(data[:MAX_BYTES]))


def work(options: argparse.Namespace) -> None:
    begin = time.monotonic()
    search = Search(Path(options.folder), options.worker, options.seed)
    first_edges = search.edge_count
    while time.monotonic() - begin < options.seconds:
        search.step()
    edges = f"{first_edges} edges at first, {search.edge_count} now"
    print(f"{options.worker:8} {search.runs} inputs tried, {len(search.inputs)} of use, {edges}")
    if options.keep:
        CORPUS.mkdir(exist_ok=True)
        small = sorted({data for data in search.inputs if len(data) <= _MAX_KEPT_BYTES})
        lines = [base64.b64encode(data).decode() + "\n" for data in small]
        (CORPUS / f"{options.worker}.txt").write_text("".join(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker")
    parser.add_argument("--folder")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true")
    work(parser.parse_args(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
