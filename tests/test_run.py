import ast
import importlib.util
import subprocess
import sys
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


def test_an_unknown_verb_lists_them_too_but_fails():
    done = subprocess.run([RUN, "tset"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "usage: ./run VERB" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "many"),
    [
        ([], True),
        (["-q", "--durations=20", "--session-timeout=1500", "--color=no"], True),
        (["-x", "--deselect", "tests/store/test_crash_states.py::test_a"], True),
        (["tests/store/test_flush.py"], False),
        (["--no-header", "tests/store/test_flush.py"], False),
        (["tests/store/test_flush.py::test_a[1::2]", "-q"], False),
        (["-k", "flush"], False),
        (["-m", "slow"], False),
        (["--pdb"], False),
        (["-s"], False),
    ],
)
def test_only_a_run_of_everything_takes_several_processes(run, arguments, many):
    assert run.workers(arguments) == (run.SIDE_BY_SIDE if many else [])


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


def test_setup_is_done_again_only_when_a_lock_changed(run, monkeypatch, tmp_path):
    for name in ("BUILD_LOCK", "LOCK", "STAMP"):
        monkeypatch.setattr(run, name, tmp_path / name)
        (tmp_path / name).touch()
    monkeypatch.setattr(run, "PYTHON", Path(sys.executable))
    installed: list[list[str]] = []
    monkeypatch.setattr(run, "execute", installed.append)
    run.setup()
    words = ("--require-hashes", "--require-hashes", "--editable", "tools.compile")
    assert all(word in command for word, command in zip(words, installed, strict=True))
    run.setup()
    assert len(installed) == 4
    run.LOCK.write_text("other==1.0")
    run.setup()
    assert len(installed) == 8


def test_a_command_that_fails_is_shown(run, capsys):
    with pytest.raises(SystemExit, match="1"):
        run.execute([sys.executable, "-c", "raise SystemExit(3)"])
    assert "this command failed with status 3" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["PIP_INDEX_URL", "PIP_NO_INDEX"])
def test_pip_installs_when_it_was_told_where_from(run, monkeypatch, tmp_path, setting):
    monkeypatch.setattr(run, "PIP_FILES", [])
    for name in run.PIP_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    uv = tmp_path / "uv"
    uv.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run.uv_is_better()
    monkeypatch.setenv(setting, "1")
    assert not run.uv_is_better()


def test_a_python_that_cannot_make_environments_is_told_what_to_install(run, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="1"):
        run.make_venv()
    assert "apt install python3." in capsys.readouterr().err
