import ast
import importlib.util
import os
import subprocess
import sys
import tempfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

RUN = Path(__file__).parents[1] / "run"


@pytest.fixture
def run() -> ModuleType:
    """The program as a module of its own for each test."""
    loader = SourceFileLoader("run", str(RUN))
    spec = importlib.util.spec_from_loader("run", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_alone_it_lists_its_verbs(run):
    listed = subprocess.run([RUN], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in listed.splitlines()[2:]] == list(run.VERBS)


@pytest.mark.parametrize(("link", "is_found"), [("nowhere.md", False), ("index.md", True)])
def test_a_dead_link_in_the_docs_fails_their_build(run, tmp_path, capsys, link, is_found):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"[there]({link})")
    (tmp_path / "mkdocs.yml").write_text("site_name: Site\nstrict: true\n")
    status = run.build_site("--config-file", str(tmp_path / "mkdocs.yml"), "--site-dir", str(tmp_path / "site"))
    said = capsys.readouterr().out
    assert (status == 0, said == "", "nowhere.md" in said) == (is_found, is_found, not is_found)


def test_an_unknown_verb_lists_them_too_but_fails():
    done = subprocess.run([RUN, "tset"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "usage: ./run VERB" in done.stdout


@pytest.mark.parametrize("verb", ["mutants", "sparks", "wheel"])
def test_help_describes_a_verb_instead_of_doing_its_work(verb):
    shown = subprocess.run([RUN, verb, "--help"], capture_output=True, text=True, check=True, timeout=20)
    assert f"./run {verb}" in shown.stdout or f"tools.{verb}" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "many"),
    [
        ([], True),
        (["-q", "--durations=20", "--session-timeout=1500", "--color=no"], True),
        (["-x", "--deselect", "tests/store/test_crash_states.py::test_a"], True),
        (["tests/store/log/test_flush.py"], False),
        (["--no-header", "tests/store/log/test_flush.py"], False),
        (["tests/store/log/test_flush.py::test_a[1::2]", "-q"], False),
        (["-k", "flush"], False),
        (["-m", "nightly"], False),
        (["--pdb"], False),
        (["-s"], False),
    ],
)
def test_only_a_run_of_everything_takes_several_processes(run, arguments, many):
    assert run.workers(arguments) == (run.SIDE_BY_SIDE if many else [])
    assert run.workers(["--all", *arguments]) == run.workers(arguments)


@pytest.mark.slow
def test_the_tests_of_a_new_clone_are_compiled_once(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest]\n")
    for path in ("tests/conftest.py", "tests/test_a.py", "tests/store/test_b.py", "tests/store/test_c.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("def test_it():\n    assert True\n")
    for _ in range(2):
        run.compile_tests()
    assert capsys.readouterr().err.count("compiling the tests") == 1
    compiled = {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")}
    assert compiled == {"conftest", "test_a", "test_b", "test_c"}


def test_an_old_python_can_read_it():
    ast.parse(RUN.read_text(), feature_version=(3, 8))


def test_an_old_python_is_told_what_to_install(run, monkeypatch, capsys):
    monkeypatch.setattr(run, "FLOOR", (99, 0))
    monkeypatch.setattr(sys, "argv", ["run", "test"])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="1"):
        run.main()
    assert "SparrowMQ needs Python 3.11 or later" in capsys.readouterr().err


def test_a_machine_without_python_is_told_what_to_install():
    done = subprocess.run([RUN, "test"], env={"PATH": ""}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no Python found" in done.stderr


def test_what_it_starts_keeps_its_bytecode(run, monkeypatch):
    started: list[dict[str, str]] = []
    monkeypatch.setattr("os.execve", lambda path, arguments, environment: started.append(environment))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("NAMED", "by the user")
    run.start("-m", "this")
    (environment,) = started
    assert "PYTHONDONTWRITEBYTECODE" not in environment and environment["NAMED"] == "by the user"


@pytest.fixture
def installed(run, monkeypatch, tmp_path) -> list[list[str]]:
    """The commands that set-up runs, with locks and stamps in a folder of the test."""
    commands: list[list[str]] = []
    monkeypatch.setattr(run, "VENV", tmp_path)
    monkeypatch.setattr(run, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(run, "REQUIREMENTS", tmp_path)
    for name in ("build.txt", *(f"{packages}.txt" for packages in run.PACKAGES)):
        (tmp_path / name).write_text("one==1.0\n")
    monkeypatch.setattr(run, "installer", lambda: (["uv", "pip", "install"], {}))
    monkeypatch.setattr(run, "answer", lambda *_command: "")
    monkeypatch.setattr(run, "execute", lambda command, environment: commands.append(command))
    return commands


def test_setup_is_done_again_only_when_a_lock_changed(run, installed):
    run.setup("demo")
    words = ("build.txt", "demo.txt", "--editable")
    for word, command in zip(words, installed, strict=True):
        assert any(part.endswith(word) for part in command)
    assert all("--require-hashes" in command for command in installed[:2])
    run.setup("demo")
    assert len(installed) == 3
    (run.REQUIREMENTS / "demo.txt").write_text("other==1.0")
    run.setup("demo")
    assert len(installed) == 6


def test_setup_installs_a_compiler_where_there_is_none(run, installed, monkeypatch):
    monkeypatch.setattr(run, "answer", lambda *_command: "ziglang")
    run.setup("demo")
    assert [command[-1].rpartition("/")[2] for command in installed[:3]] == ["build.txt", "compiler.txt", "demo.txt"]


def test_a_verb_installs_its_own_packages_only(run, installed):
    run.setup("dev")
    run.setup("demo")  # all of the demo's packages are among them
    assert len(installed) == 3
    run.setup("release")
    assert any(part.endswith("release.txt") for part in installed[4])
    assert {packages for _, _, packages in run.VERBS.values()} <= set(run.PACKAGES)


def test_the_demo_needs_no_linter_no_browser_and_no_lake():
    lock = (RUN.parent / "requirements" / "demo.txt").read_text()
    names = {line.partition("==")[0] for line in lock.splitlines() if "==" in line}
    assert "pyspark" in names
    assert not names & {"ruff", "mypy", "playwright", "pyiceberg", "deltalake", "nicegui", "pytest"}


def test_sets_of_packages_agree_on_versions():
    """One .venv takes several sets, so a package has the same version in each."""
    versions: dict[str, set[str]] = {}
    for name in ("demo", "dev", "docs", "release"):
        for line in (RUN.parent / "requirements" / f"{name}.txt").read_text().splitlines():
            if "==" in line and line[0].isalnum():
                package, _, version = line.removesuffix(" \\").partition(" ;")[0].partition("==")
                versions.setdefault(package, set()).add(version.strip())
    assert {package: found for package, found in versions.items() if len(found) > 1} == {}


def test_a_command_that_fails_is_shown(run, capsys):
    with pytest.raises(SystemExit, match="1"):
        run.execute([sys.executable, "-c", "raise SystemExit(3)"], None)
    assert "this command failed with status 3" in capsys.readouterr().err


def test_uv_gets_the_settings_of_pip(run, monkeypatch, tmp_path):
    for name in ("UV_DEFAULT_INDEX", "UV_FIND_LINKS", "UV_HTTP_TIMEOUT", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    settings = run.uv_settings(
        {
            "index-url": "http://127.0.0.1:1/simple",
            "find-links": f"{tmp_path} /not/there http://127.0.0.1:1/files",
            "cert": "/etc/ca.pem",
            "no-color": "1",
        }
    )
    assert settings == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "http://127.0.0.1:1/simple",
        "UV_FIND_LINKS": f"{tmp_path},http://127.0.0.1:1/files",
        "SSL_CERT_FILE": "/etc/ca.pem",
    }
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:2/simple")
    assert "UV_DEFAULT_INDEX" not in run.uv_settings({"index-url": "http://127.0.0.1:1/simple"})


def test_settings_of_pip_come_from_its_files_and_the_environment(run, monkeypatch, tmp_path):
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:1/simple\ntimeout = 7\n")
    monkeypatch.setattr(run, "PYTHON", Path(sys.executable))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:2/simple")
    found = run.pip_settings()
    assert found["index-url"] == "http://127.0.0.1:2/simple"
    assert found["timeout"] == "7"


def test_pip_installs_where_uv_cannot_be_had(run, monkeypatch, capsys):
    monkeypatch.setattr(subprocess, "call", lambda *_, **__: 1)
    command, environment = run.installer()
    assert command[1:4] == ["-m", "pip", "install"] and "DIST_EXTRA_CONFIG" in environment
    assert "uv cannot be installed here" in capsys.readouterr().err


def test_a_python_that_cannot_make_environments_is_told_what_to_install(run, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="1"):
        run.make_venv()
    assert "apt install python3." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("used", "free", "prefers_memory", "chosen"),
    [
        (0.69, 9 << 30, False, "/some"),
        (0.71, 9 << 30, False, "/dev/shm"),
        (0.71, 7 << 30, False, "/some"),
        (0.10, 9 << 30, True, "/dev/shm"),
        (0.10, 7 << 30, True, "/some"),
    ],
)
def test_tests_keep_their_files_in_memory_if_that_is_quicker_or_the_disk_is_nearly_full(
    run, monkeypatch, used, free, prefers_memory, chosen
):
    monkeypatch.setenv("TMPDIR", "/some")
    monkeypatch.setattr(tempfile, "tempdir", "/some")
    monkeypatch.setattr(run, "used_share", {"/some": used}.get)
    monkeypatch.setattr(run, "free_bytes", {"/dev/shm": free}.get)
    run.use_a_folder_with_room(prefers_memory)
    assert os.environ["TMPDIR"] == chosen


def test_the_used_share_of_a_disk_is_that_of_df(run, tmp_path):
    shown = subprocess.run(["df", "--output=pcent", str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert abs(run.used_share(str(tmp_path)) - int(shown.split()[-1].rstrip("%")) / 100) < 0.02
    assert run.free_bytes(str(tmp_path)) > 0 and run.free_bytes("/not there") == 0


@pytest.mark.parametrize(("arguments", "chosen"), [([], "not slow and not nightly"), (["--all"], "not nightly")])
def test_ci_runs_slow_tests_too(run, monkeypatch, arguments, chosen):
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(run, "start", lambda *command, java: started.append(command))
    monkeypatch.setattr(run, "compile_tests", lambda: None)
    run.test(arguments)
    (command,) = started
    assert command[command.index("-m", 2) + 1] == chosen and "--all" not in command
    assert "./run test --all" in (RUN.parent / ".ci" / "run").read_text()
