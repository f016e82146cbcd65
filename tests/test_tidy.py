"""Style as an ordinary test: floors, sizes and the few places where risky things may be done.

The floors are those of the architecture: a module imports its own part and lower floors, and siblings never
import each other. Each test lists every offence as `file:line: what`, so that one run shows all there is to mend.
"""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, wraps
from itertools import chain
from pathlib import Path

import pytest

from tools.floors import FLOOR_OF, FLOORS, imported_parts, part_of
from tools.size import Product

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sparrowmq"
FOLDERS = ("sparrowmq", "pyspark_rocketmq", "pytest_sparrowmq", "tests", "tools", "bench", "examples")
BESIDE = (
    *(
        ".ci",
        ".dockerignore",
        ".github",
        ".gitignore",
        "run",
        "hatch_build.py",
        "mkdocs.yml",
        "pyproject.toml",
        "requirements",
    ),
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "changes", "deploy", "docs"),
)
FILES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
OURS = [file for file in FILES if file.is_relative_to(PACKAGE)]

LONGEST_FUNCTION = 60
MOST_ARGUMENTS = 8  # that can be given by their place, `self` apart; those behind a `*` have to be named
TAKE_MORE = {
    "sparrowmq/protocol/messages/entry.py:__init__",  # the fields of a message, each by itself, and nothing else
    "sparrowmq/protocol/messages/message.py:__init__",  # likewise
    "tests/protocol/messages/test_record.py:encoded",  # likewise
}
# Modules that import each other, if only for types, or folders that do.
CIRCLES = [
    # The store has no coroutines; upkeep has those that move it.
    {"sparrowmq.store.message_store", "sparrowmq.store.upkeep"},
]

# The place, what is below it, and what reads bytes, times with fractions, or digits that a pattern has found.
READ_DIGITS = {
    "sparrowmq/broker/transactions/half_message.py",
    "sparrowmq/cli/terminal/arguments.py",
    "sparrowmq/core/digits.py",
    "sparrowmq/filter/comparison.py",
    "sparrowmq/protocol/wire/json.py",
    "sparrowmq/settings/setting_kinds.py",
    "sparrowmq/spark/lakehouse/lake_progress.py",
}
# The four places that may catch everything: the dispatcher and what it waits for, the session and whom it tells of an
# answer, the user's callbacks, the chores. A gRPC call is dispatched too, in three modules.
CATCH_ALL = {
    "sparrowmq/remoting/handler.py",
    "sparrowmq/remoting/request_dispatch.py",
    "sparrowmq/remoting/request_in_flight.py",
    "sparrowmq/loop/tasks.py",
    "sparrowmq/client/transaction_checks.py",
    "sparrowmq/client/consuming/handler_thread.py",
    "sparrowmq/client/consuming/received_message.py",
    "sparrowmq/client/consuming/workers.py",
    "sparrowmq/client/cluster/connection_hooks.py",
    "sparrowmq/client/sending/send_hooks.py",
    "sparrowmq/broker/part.py",
    "sparrowmq/http2/exchange.py",
}
MAY_WRITE = {"sparrowmq/store/vfs.py"}
WRITING_CALL = re.compile(
    r"os\.(open|p?writev?|fsync|fdatasync|f?truncate|rename|replace|unlink|remove|posix_fallocate)"
    r"|shutil\.\w+|.*\.write_(text|bytes)"
)
WRITING_MODE = re.compile(r"[rbt]*[wax+][rbt+]*")
MACHINE_PATH = re.compile(r"(?:^|[^\w.])/(?:root|work|farm|Users)/[A-Za-z]")

Offence = tuple[Path, int, str]  # where, and what is wrong there
pytestmark = pytest.mark.slow  # `./run lint` runs them


@pytest.fixture(autouse=True, scope="module")
def no_search_for_garbage() -> Iterator[None]:
    """Two million nodes stay until the end: to look through them again and again takes longer than to make them."""
    gc.disable()
    yield
    nodes.cache_clear()
    gc.enable()


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@cache
def nodes(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(file.read_text(), str(file))))


def tidy(check: Callable[[], Iterator[Offence]]) -> Callable[[], None]:
    """Makes a test of a function that yields offences."""

    @wraps(check)
    def test() -> None:
        lines = [f"{name_of(file)}:{line}: {what}" for file, line, what in check()]
        assert not lines, "\n" + "\n".join(lines)

    return test


def test_modules_and_folders_import_each_other_in_one_direction():
    found = Product().circles()
    assert [circle for circle in found if circle not in CIRCLES] == []
    assert [circle for circle in CIRCLES if circle not in found] == [], "these are mended; strike them from CIRCLES"


@tidy
def test_functions_take_few_arguments() -> Iterator[Offence]:
    too_many: set[str] = set()
    for file in FILES:
        for node in nodes(file):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
                count = len(names) - (names[:1] in (["self"], ["cls"]))
                if count > MOST_ARGUMENTS:
                    place = f"{name_of(file)}:{node.name}"
                    too_many.add(place)
                    if place not in TAKE_MORE:
                        yield file, node.lineno, f"{node.name} takes {count}, the most is {MOST_ARGUMENTS}"
    for place in TAKE_MORE - too_many:
        yield Path(__file__), 1, f"{place} takes few arguments; strike it from TAKE_MORE"


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


def test_every_floor_has_the_rooms_that_there_are_and_contributing_draws_them():
    there = {part_of(file) for file in OURS} - {"__init__", "__main__"}
    assert set(FLOOR_OF) == there
    drawing = (ROOT / "CONTRIBUTING.md").read_text().partition("## Floors")[2].split("```")[1]
    # What a floor is for is in the column below `programs and`; the lowest floor's names take whole lines.
    width = drawing.index("programs and") - 1
    upper, _, lowest = drawing.strip().partition("\n0 ")
    drawn = {int(line[0]): set(line[1:width].split()) for line in upper.splitlines()} | {0: set(lowest.split())}
    assert drawn == dict(enumerate(FLOORS))


def parts_loaded_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*(name for name in sys.modules if name.startswith('sparrowmq.')))"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.split(".")[1] for name in run.stdout.split()}


def test_importing_the_package_alone_loads_no_upper_floor():
    parts = parts_loaded_by("import sparrowmq")
    assert not [part for part in parts if FLOOR_OF[part] > 1], "import these in __getattr__"


def test_a_client_loads_what_operators_do_only_when_a_program_asks_for_it():
    assert "admin" not in parts_loaded_by("import sparrowmq.client.client, sparrowmq.client.blocking_client")


@tidy
def test_functions_stay_short() -> Iterator[Offence]:
    for file in FILES:
        for node in nodes(file):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    yield file, node.lineno, f"{node.name} has {length} lines, the most is {LONGEST_FUNCTION}"


@tidy
def test_only_four_places_catch_everything() -> Iterator[Offence]:
    """A handler that ends by raising again only cleans up, so it may stand anywhere."""
    for file in OURS:
        for node in nodes(file):
            if not isinstance(node, ast.ExceptHandler) or name_of(file) in CATCH_ALL:
                continue
            caught = {ast.unparse(each) for each in ast.walk(node.type)} if node.type else {"Exception"}
            raises_again = isinstance(node.body[-1], ast.Raise)
            if caught & {"Exception", "BaseException"} and not raises_again:
                yield file, node.lineno, "catches everything; name the errors, or let them pass"


@tidy
def test_numbers_that_others_write_are_read_in_one_place() -> Iterator[Offence]:
    """`int` of a value that a producer chose raised, and ended the delivery of all timers."""
    for file in OURS:
        for node in nodes(file) if name_of(file) not in READ_DIGITS else ():
            if isinstance(node, ast.Attribute) and node.attr in ("isdecimal", "isdigit", "isnumeric"):
                yield file, node.lineno, "reads a number; use digits.whole_number"


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
def test_what_catches_a_group_raises_after_it() -> Iterator[Offence]:
    """Up to Python 3.11.3 an error that is raised inside `except*` comes out in a group."""
    for file in FILES:
        groups = [node for node in nodes(file) if isinstance(node, ast.TryStar)]
        for node in chain.from_iterable(ast.walk(each) for group in groups for each in group.handlers):
            if isinstance(node, ast.Raise):
                yield file, node.lineno, "raises inside `except*`"


@tidy
def test_the_store_touches_the_disk_in_one_file() -> Iterator[Offence]:
    for file in OURS:
        for node in nodes(file):
            match node:
                case ast.Import(names=[ast.alias("mmap")]) | ast.ImportFrom(module="mmap"):
                    yield file, node.lineno, "maps memory: a file that was cut then kills the process"
                case ast.Call() if part_of(file) == "store" and name_of(file) not in MAY_WRITE and writes(node):
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
def test_no_file_names_a_machine() -> Iterator[Offence]:
    others = ("*.md", "*.toml", "run", ".ci/run", "docs/**/*.md", "requirements/*")
    texts = [file for pattern in others for file in ROOT.glob(pattern)]
    for file in [*FILES, *texts]:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if MACHINE_PATH.search(line):
                yield file, number, "names a path of one machine"


def test_the_repository_has_no_package_of_others():
    assert in_repository("*.whl", "*.jar", "*.zip", "*.tgz", "*.tar.*", "*.so") == []


def test_the_repository_has_no_files_that_a_run_left():
    assert {name.partition("/")[0] for name in in_repository()} <= {*FOLDERS, *BESIDE}


def in_repository(*patterns: str) -> list[str]:
    """The files that are in the repository, or would be with the next commit."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    found = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if found.returncode:
        pytest.skip("only on a checkout by git")
    return found.stdout.splitlines()
