"""Style as an ordinary test: floors, sizes, names and the few places where risky things may be done.

The floors are those of the architecture: a module imports its own part and lower floors, and siblings never
import each other. Each test lists every offence as `file:line: what`, so that one run shows all there is to mend.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, wraps
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sparrowmq"
FOLDERS = ("sparrowmq", "pyspark_rocketmq", "tests", "tools", "bench", "examples")
FILES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
OURS = [file for file in FILES if file.is_relative_to(PACKAGE)]

FLOORS = (
    {
        "errors",
        "clock",
        "waiting",
        "watermark",
        "turn",
        "safety",
        "background",
        "snapshot",
        "config",
        "kinds",
        "stats",
        "compiled",
        "memory",
        "descriptors",
        "shown",
    },
    {"protocol", "filter"},
    {"store", "remoting", "auth"},
    {"namesrv", "broker", "client"},
    {"admin", "sync", "testing"},
    {"cli", "console", "spark"},
    {"demo"},
)
FLOOR_OF = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}

LONGEST_FILE = 600
LONGEST_FUNCTION = 60
BANNED = r"manager|service|processor|impl|default|abstract|base|utils?|helpers?|common|info|data"
NAMES_OF_OTHERS = (
    # of Spark, asyncio and RocketMQ
    r"DefaultSource|getDefaultReadLimit|data_received|\w*(DataVersion|data_version)\w*"
)

# The three places that may catch everything: the dispatcher and what it waits for, the user's callbacks, the chores.
CATCH_ALL = {
    "sparrowmq/remoting/dispatch.py",
    "sparrowmq/waiting.py",
    "sparrowmq/client/consuming/concurrently.py",
    "sparrowmq/client/consuming/orderly.py",
    "sparrowmq/broker/chores.py",
}
MAY_MAP = {"sparrowmq/store/mapped_file.py", "sparrowmq/store/vfs.py"}
MAY_WRITE = {"sparrowmq/store/vfs.py"}
WRITING_CALL = re.compile(
    r"os\.(open|p?writev?|fsync|fdatasync|f?truncate|rename|replace|unlink|remove|posix_fallocate)"
    r"|shutil\.\w+|.*\.write_(text|bytes)"
)
WRITING_MODE = re.compile(r"[rbt]*[wax+][rbt+]*")
MACHINE_PATH = re.compile(r"(?:^|[^\w.])/(?:root|work|farm|Users)/[A-Za-z]")

Offence = tuple[Path, int, str]  # where, and what is wrong there


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def tidy(check: Callable[[], Iterator[Offence]]) -> Callable[[], None]:
    """Makes a test of a function that yields offences."""

    @wraps(check)
    def test() -> None:
        lines = [f"{name_of(file)}:{line}: {what}" for file, line, what in check()]
        assert not lines, "\n" + "\n".join(lines)

    return test


def part_of(file: Path) -> str:
    """The part of the package that a file belongs to: `store` for sparrowmq/store/flush.py, `clock` for clock.py."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(file: Path) -> Iterator[tuple[int, str]]:
    """Each part of the package that a file imports, however it is written, with the line."""
    here = ("sparrowmq", *file.relative_to(PACKAGE).with_suffix("").parts)
    for node in ast.walk(tree(file)):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            targets = [f"{module}.{alias.name}" for alias in node.names]
        for target in targets:
            top, _, rest = target.partition(".")
            if top == "sparrowmq" and isinstance(node, ast.Import | ast.ImportFrom):
                yield node.lineno, rest.partition(".")[0]


@tidy
def test_a_module_imports_only_its_own_part_and_lower_floors() -> Iterator[Offence]:
    for file in OURS:
        part = part_of(file)
        if part in ("__init__", "__main__"):
            continue
        if part not in FLOOR_OF:
            yield file, 1, f"{part} has no floor; give it one in FLOORS"
            continue
        for line, other in imported_parts(file):
            if other not in FLOOR_OF:
                yield (
                    file,
                    line,
                    f"imports {other or 'sparrowmq'}; import the module that defines what it needs",
                )
            elif other != part and FLOOR_OF[other] >= max(FLOOR_OF[part], 1):
                yield file, line, f"{part} (floor {FLOOR_OF[part]}) imports {other} (floor {FLOOR_OF[other]})"


def test_importing_the_package_alone_loads_no_upper_floor():
    program = "import sys, sparrowmq; print(*(name for name in sys.modules if name.startswith('sparrowmq.')))"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    parts = {name.split(".")[1] for name in run.stdout.split()}
    assert not [part for part in parts if FLOOR_OF[part] > 1], "import these in __getattr__"


@tidy
def test_files_and_functions_stay_short() -> Iterator[Offence]:
    for file in FILES:
        length = file.read_text().count("\n")
        if length > LONGEST_FILE:
            yield file, 1, f"{length} lines, the most is {LONGEST_FILE}"
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    yield file, node.lineno, f"{node.name} has {length} lines, the most is {LONGEST_FUNCTION}"


@tidy
def test_names_say_what_a_thing_is() -> Iterator[Offence]:
    for file in OURS:
        names = [(1, file.stem)]
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names += [(node.lineno, node.name)]
        for line, name in names:
            words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
            banned = [word for word in words if re.fullmatch(BANNED, word.lower())]
            if banned and not re.fullmatch(NAMES_OF_OTHERS, name):
                yield file, line, f"{name} contains {' and '.join(banned)}"


@tidy
def test_only_three_places_catch_everything() -> Iterator[Offence]:
    """A handler that ends by raising again only cleans up, so it may stand anywhere."""
    for file in OURS:
        for node in ast.walk(tree(file)):
            if not isinstance(node, ast.ExceptHandler) or name_of(file) in CATCH_ALL:
                continue
            caught = {ast.unparse(each) for each in ast.walk(node.type)} if node.type else {"Exception"}
            raises_again = isinstance(node.body[-1], ast.Raise)
            if caught & {"Exception", "BaseException"} and not raises_again:
                yield file, node.lineno, "catches everything; name the errors, or let them pass"


def writes(call: ast.Call) -> bool:
    """Whether a call changes files: a function of os, a write method of a path, or open() with a mode to write."""
    name = ast.unparse(call.func)
    if WRITING_CALL.fullmatch(name):
        return True
    position = 1 if name == "open" else 0  # open(path, mode), path.open(mode)
    modes = [
        *call.args[position : position + 1],
        *(each.value for each in call.keywords if each.arg == "mode"),
    ]
    strings = [mode.value for mode in modes if isinstance(mode, ast.Constant)]
    return name.endswith("open") and any(WRITING_MODE.fullmatch(str(mode)) for mode in strings)


@tidy
def test_the_store_touches_the_disk_in_one_file() -> Iterator[Offence]:
    for file in OURS:
        for node in ast.walk(tree(file)):
            match node:
                case ast.Import(names=[ast.alias("mmap")]) | ast.ImportFrom(module="mmap"):
                    if name_of(file) not in MAY_MAP:
                        yield file, node.lineno, "maps memory; store/mapped_file.py does that"
                case ast.Call() if (
                    part_of(file) == "store" and name_of(file) not in MAY_WRITE and writes(node)
                ):
                    yield file, node.lineno, "changes a file; store/vfs.py does that"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("os.open(path, flags)", True),
        ("os.pwrite(fd, b'', 0)", True),
        ("open(path, 'r+b')", True),
        ("open(path, mode='w')", True),
        ("path.open('ab')", True),
        ("path.write_bytes(b'')", True),
        ("open(path)", False),
        ("open('wax', 'rb')", False),
        ("open(path, 'rb')", False),
        ("os.pread(fd, 1, 0)", False),
        ("vfs.open(path)", False),
        ("vfs.open('lock')", False),
    ],
)
def test_calls_that_change_files_are_recognised(source, expected):
    call = ast.parse(source, mode="eval").body
    assert isinstance(call, ast.Call)
    assert writes(call) == expected


@tidy
def test_every_module_has_its_test_file() -> Iterator[Offence]:
    for file in OURS:
        test = ROOT / "tests" / file.relative_to(PACKAGE).with_name(f"test_{file.name}")
        if not file.stem.startswith("__") and not (test.is_file() and "def test_" in test.read_text()):
            yield file, 1, f"has no test in {name_of(test)}"


@tidy
def test_no_file_names_a_machine() -> Iterator[Offence]:
    others = ("*.md", "*.toml", "run", ".ci/run", "docs/**/*.md", "requirements/*")
    texts = [file for pattern in others for file in ROOT.glob(pattern)]
    for file in [*FILES, *texts]:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if MACHINE_PATH.search(line):
                yield file, number, "names a path of one machine"
