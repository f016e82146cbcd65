"""Command lines of README and docs: each names commands, options, verbs, extras and files that exist.

Tests of the pages run them, too: COVERED names these tests. EXEMPT programs and long ones of ./run are not run here.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click
import pytest

from bench.__main__ import questions
from bench.chaos.__main__ import rigs
from sparrowmq.cli.main import main as sparrowmq
from sparrowmq.cli.mqadmin import java_options as mqadmin_options
from sparrowmq.cli.mqadmin.subcommand_table import find
from sparrowmq.cli.servers.proxy import proxy
from sparrowmq.cli.servers.serve import broker, namesrv
from tests.environments import program_run, python_with, variables

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for pattern in ("README.md", "CONTRIBUTING.md", "examples/README.md", "docs/**/*.md")
    for page in ROOT.glob(pattern)
    if "adr" not in page.parts
)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# The tests that run the commands of a page, or the same commands with smaller values.
COVERED = {
    "README.md": ["tests/test_readme.py", "tests/spark/test_programs.py"],
    "CONTRIBUTING.md": ["tests/test_run.py"],
    "examples/README.md": ["tests/examples/test_examples.py"],
    "docs/operate/console.md": ["tests/test_operate_pages.py"],
    "docs/operate/containers.md": ["tests/deploy/test_others.py"],
    "docs/operate/failover.md": ["tests/test_operate_pages.py"],
    "docs/operate/metrics.md": ["tests/test_operate_pages.py"],
    "docs/operate/mqadmin.md": ["tests/test_operate_pages.py"],
    "docs/operate/operating.md": ["tests/test_operating_page.py"],
    "docs/operate/reliability.md": ["tests/bench/chaos/test_main.py", "tests/cli/store/test_log_copy.py"],
    "docs/operate/replication.md": [
        "tests/examples/test_clusters.py",
        "tests/cli/servers/test_broker_processes.py",
    ],
    "docs/operate/security.md": ["tests/test_operate_pages.py", "tests/test_closed_cluster_page.py"],
    "docs/start/from-celery.md": ["tests/test_migration_pages.py"],
    "docs/start/quickstart.md": ["tests/test_quickstart_page.py", "tests/spark/test_programs.py"],
    "docs/start/testing.md": ["tests/test_testing_page.py"],
    "docs/start/tutorial.md": ["tests/test_tutorial_page.py"],
    "docs/understand/release.md": ["tests/tools/test_release.py"],
    "docs/use/client.md": ["tests/test_client_page.py"],
    "docs/use/errors.md": ["tests/test_operate_pages.py"],
    "docs/use/lake.md": ["tests/spark/test_lake_command.py"],
    "docs/use/once.md": ["tests/test_once_page.py"],
    "docs/use/pipelines.md": ["tests/spark/pipelines/test_page.py"],
    "docs/use/remote-tables.md": ["tests/spark/pipelines/test_remote_page.py"],
    "docs/use/rocketmq5.md": [
        "tests/interop/test_rocketmq5_page.py",
        "tests/cli/servers/test_proxy_command.py",
    ],
    "docs/use/schemas.md": ["tests/test_schemas_page.py"],
    "docs/use/spark.md": ["tests/test_shown_commands.py", "tests/spark/cluster/test_standalone.py"],
}
SHELL = {
    *(".", "cat", "chmod", "cp", "curl", "do", "done", "eval", "export", "install", "kill", "mkdir", "mv"),
    *("printf", "sleep", "source", "while"),
}
EXEMPT = {
    "celery": "a program of others; the tab beside it has ours",
    "docker": "needs Docker; tests/deploy/test_image.py takes the same steps without it",
    "etcdctl": "needs etcd",
    "git": "a program of others",
    "kubectl": "needs Kubernetes; tests/deploy/test_manifests.py reads the files",
    "openssl": "a program of others; tests/test_operate_pages.py runs it",
    "pypi-server": "an index for tries; tests/tools/test_release.py has its own",
    "spark-class": "a program of Spark; tests/spark/cluster/test_standalone.py starts it",
    "systemctl": "needs systemd; tests/deploy/test_others.py reads the units",
    "useradd": "changes the machine",
}
SHELL_BOXES = {"sh", "bash", "start"}
COMPLETIONS = {"zsh", "fish"}
BOX = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`((?:sparrowmq|smq|mqadmin|mqbroker|mqnamesrv|mqproxy|\./run|pip|pytest) [^`]+)`(?!`)")
HEREDOC = re.compile(r"<<(\w+)\n.*?^\1$", re.MULTILINE | re.DOTALL)
# Words that readers replace, where not every text is a value.
PLACEHOLDERS = {"KEY=VALUE": "fileReservedTime=48", "LIMIT": "4", "N": "4", "OFFSET": "0", "TIME": "earliest"}


class Shown(NamedTuple):
    """A command of a page."""

    page: Path
    line: str
    words: Sequence[str]
    is_whole: bool  # in a box; in a sentence the arguments may be missing

    @property
    def program(self) -> str:
        return program_of(self.words[0])


def boxes(page: Path) -> Iterator[tuple[str, str]]:
    """Each box of a page: its kind, and its text."""
    for _, kind, content in BOX.findall(page.read_text(encoding="utf-8")):
        yield kind, textwrap.dedent(content)


def in_boxes(page: Path) -> Iterator[Shown]:
    """The commands of a page's boxes. A box without a kind may have other lines, too, such as output."""
    for kind, content in boxes(page):
        if kind not in {*SHELL_BOXES, ""}:
            continue
        for line in HEREDOC.sub("", content.replace("\\\n", " ")).splitlines():
            for words in split(line) if kind or starts_with_a_program(line) else []:
                yield Shown(page, line, words, True)


def in_sentences(page: Path) -> Iterator[Shown]:
    for line in SPAN.findall(BOX.sub("", page.read_text(encoding="utf-8"))):
        words = shlex.split(re.sub(r"\[(--[^]]*)\]", r"\1", line.replace("\n", " ")))
        yield Shown(page, line, [PLACEHOLDERS.get(word, word) for word in words], False)


def starts_with_a_program(line: str) -> bool:
    found = re.match(r"(?:\w+=\S+ )*([\w./$-]+)(?= |$)", line)
    return found is not None and program_of(found[1]) in {*CHECKS, *EXEMPT, "export"}


def program_of(word: str) -> str:
    """The name of a program, which may be written with its folder."""
    return word if word.endswith("./run") else word.rpartition("/")[2]


def split(line: str) -> Iterator[list[str]]:
    """The commands of a shell's line, each as its words, without variables before it and redirections after it."""
    parts = shlex.shlex(re.sub(r"(^|\s)#.*", "", line), posix=True, punctuation_chars=";&|<>")
    parts.whitespace_split = True
    command: list[str] = []
    for word in [*parts, ";"]:
        if re.fullmatch(r"[;&|]+", word):
            if command:
                yield command
            command = []
        elif command or not re.match(r"\w+=|(while|do)$", word):
            command.append(word)


# What is checked of each program -------------------------------------------------------------------------------------


def check_click(command: click.Command) -> Callable[[Shown], None]:
    """A check that a command of ours exists, takes the options, and has the arguments that it needs."""

    def check(shown: Shown) -> None:
        found, words = command, list(shown.words[1:])
        while isinstance(found, click.Group) and words and not words[0].startswith("-"):
            with click.Context(found) as context:
                inner = found.get_command(context, words[0])
            if inner is None:
                assert words[0].isupper() and not shown.is_whole, f"there is no command {words[0]}"
                return
            found, words = inner, words[1:]
        if words == ["--help"]:
            return
        try:
            with TemporaryDirectory() as folder, chdir(folder):
                Path("rmq-proxy.json").write_text("{}")  # which mqbroker and mqproxy read at once
                found.make_context(found.name, words)
        except (click.MissingParameter, click.exceptions.NoArgsIsHelpError):
            assert not shown.is_whole, "an argument is missing"
        except click.UsageError as error:
            raise AssertionError(error.format_message()) from error

    return check


def check_mqadmin(shown: Shown) -> None:
    words = list(shown.words[1:])
    if not words:
        return
    if words[0] == "help":
        words = words[1:]
    command = find(words[0])
    assert command, f"there is no command {words[0]}"
    given = [word for word in words if re.match(r"-+[a-zA-Z]", word)]
    known = {key for option in command.options for key in (f"-{option.letter}", f"--{option.name}")}
    assert set(given) <= known, f"there is no option {set(given) - known}"
    if shown.is_whole and len(words) > 1:
        mqadmin_options.parse(words[1:], command.options)


def check_run(shown: Shown) -> None:
    _, verb, *words = shown.words
    assert verb in program_run().VERBS, f"there is no verb {verb}"
    sources = {"chaos": "bench/chaos", "stress": "tests/client/stress", "fuzz": "tests/fuzz"}
    names = [word for word in words if re.fullmatch(r"[a-z_]+", word)]
    if verb in ("chaos", "bench"):
        unknown = set(names) - set(rigs() if verb == "chaos" else questions())
        assert not unknown, f"./run {verb} has no {unknown}"
    if verb in sources:
        source = (ROOT / sources[verb] / "__main__.py").read_text()
        assert all(f'"{word}"' in source for word in words if word.startswith("--"))
    assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))


def check_pip(shown: Shown) -> None:
    """The package comes from a clone, as no index has it; and the extras exist."""
    if "pypiserver" in shown.words or "--index-url" in shown.words:
        assert shown.page.name == "release.md"
        return
    [what] = [word for word in shown.words[2:] if not word.startswith("-") and not word.endswith(".txt")]
    found = re.fullmatch(r"(?:\.|\./dist/\S*)(?:\[([a-z,]+)\])?", what)
    assert found, "the package is not in an index"
    unknown = set((found[1] or "server").split(",")) - set(EXTRAS)
    assert not unknown, f"there is no extra {unknown}"


def check_python(shown: Shown) -> None:
    """A program is a file of the repository, or one that the page shows."""
    if (program := shown.words[1]).startswith("-"):
        assert shown.words[1:3] == ["-m", "venv"] or shown.words[0] == "export"
    else:
        assert (ROOT / program).is_file() or f"`{program}`" in shown.page.read_text()


def check_pytest(shown: Shown) -> None:
    source = (ROOT / "pytest_sparrowmq" / "__init__.py").read_text()
    assert all(f'"{word}"' in source for word in shown.words if word.startswith("--"))


CHECKS: dict[str, Callable[[Shown], None]] = {
    "sparrowmq": check_click(sparrowmq),
    "smq": check_click(sparrowmq),
    "mqbroker": check_click(broker),
    "mqnamesrv": check_click(namesrv),
    "mqproxy": check_click(proxy),
    "mqadmin": check_mqadmin,
    "./run": check_run,
    "pip": check_pip,
    "python": check_python,
    "python3": check_python,
    "pytest": check_pytest,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_command_of_a_page_is_valid(page, monkeypatch):
    monkeypatch.setattr(click.Path, "convert", lambda self, value, param, context: value)
    faults = []
    for shown in [*in_boxes(page), *in_sentences(page)]:
        if shown.program in CHECKS:
            try:
                CHECKS[shown.program](shown)
            except (AssertionError, mqadmin_options.WrongOptions) as error:
                faults.append(f"{shown.line}: {error}")
        elif shown.program not in {*SHELL, *EXEMPT}:
            faults.append(f"{shown.line}: {shown.program} is neither checked nor in EXEMPT")
    assert not faults, "\n" + "\n".join(faults)


def test_each_page_with_commands_has_a_test_that_runs_them():
    with_commands = {page.relative_to(ROOT).as_posix() for page in PAGES if any(in_boxes(page))}
    assert with_commands == set(COVERED)
    for page, tests in COVERED.items():
        assert all((ROOT / test).is_file() for test in tests), page


def test_exempt_programs_are_still_on_a_page():
    programs = {shown.program for page in PAGES for shown in in_boxes(page)}
    assert set(EXEMPT) <= programs and len(programs & set(CHECKS)) > 7


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("sparrowmq topic list --nothing", "No such option"),
        ("sparrowmq topics list", "there is no command"),
        ("sparrowmq topic show", "an argument is missing"),
        ("mqadmin clusterLists", "there is no command"),
        ("mqadmin topicList --nothing", "there is no option"),
        ("./run tset", "there is no verb"),
        ("./run chaos kil", "has no"),
        ('pip install ".[servers]"', "there is no extra"),
        ('pip install "sparrowmq[server]"', "not in an index"),
    ],
)
def test_wrong_commands_are_found(line, fault):
    [words] = split(line)
    with pytest.raises(AssertionError, match=fault):
        CHECKS[words[0]](Shown(ROOT / "README.md", line, words, True))


# Commands that no other test runs ------------------------------------------------------------------------------------


def test_lines_for_completion_work_with_the_extra_server():
    text = (ROOT / "docs" / "operate" / "operating.md").read_text()
    lines = re.findall(r"(_\w+_COMPLETE)=(\w+_source) (\w+)", text)
    assert {shell for _, shell, _ in lines} == {f"{shell}_source" for shell in ("bash", *COMPLETIONS)}
    python = python_with("server")
    for variable, shell, program in lines:
        script = subprocess.run(
            [python.with_name(program)],
            env=variables(python, **{variable: shell}),
            capture_output=True,
            text=True,
            check=True,
        )
        assert variable in script.stdout


def test_programs_are_submitted_to_spark_with_the_extras_of_the_page(tmp_path):
    page = ROOT / "docs" / "use" / "spark.md"
    lines = [shown.words for shown in in_boxes(page) if shown.program == "sparrowmq" and "submit" in shown.words]
    assert len(lines) > 2 and 'pip install ".[server,spark]"' in page.read_text()
    python = python_with("server", "spark")
    for _, spark, submit, *words in lines:
        done = subprocess.run(
            [python.with_name("sparrowmq"), spark, submit, "--dry-run", *words],
            env=variables(python),
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and "bin/spark-submit " in done.stdout, done.stderr
