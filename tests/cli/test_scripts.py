import os
import subprocess
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import main
from sparrowmq.cli.scripts import NEEDED
from sparrowmq.cli.servers.serve import broker, namesrv
from sparrowmq.version import VERSION

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


VERSION_LINE = f"sparrowmq, version {VERSION}\n"
NO_PACKAGES = ["-I", "-S"]  # no installed package is found


def run_script(script, *words, options=()):
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from sparrowmq.cli import scripts; scripts.{script}()"
    command = [sys.executable, *options, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=20)


@pytest.mark.parametrize("words", [[], ["-V"], ["--help"], ["version"]])
@pytest.mark.parametrize("script", ["sparrowmq", "mqnamesrv", "mqbroker"])
def test_a_server_without_its_extra_says_what_to_install(script, words):
    done = run_script(script, *words, options=NO_PACKAGES)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr == (
        f"{script}: click and h11 and javaproperties and lark and prometheus_client and yaml are "
        "not installed; install the package with what its servers need: pip install 'sparrowmq[server]'\n"
    )


@pytest.mark.parametrize("options", [[], NO_PACKAGES], ids=["with the extra", "without it"])
@pytest.mark.parametrize("script", ["sparrowmq", "mqnamesrv", "mqbroker"])
def test_version_needs_no_extra(script, options):
    done = run_script(script, "--version", options=options)
    assert (done.returncode, done.stdout, done.stderr) == (0, VERSION_LINE, "")


@pytest.mark.parametrize("options", [[], NO_PACKAGES[1:]], ids=["with the extra", "without it"])
def test_version_of_the_module_needs_no_extra(options):
    command = [sys.executable, *options, "-m", "sparrowmq", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, VERSION_LINE, "")


@pytest.mark.parametrize("command", [main, namesrv, broker])
def test_click_prints_the_same_version(command):
    assert CliRunner().invoke(command, ["--version"]).output == VERSION_LINE


def test_the_package_installs_scripts_that_are_there():
    for target in PROJECT["scripts"].values():
        module, _, name = target.partition(":")
        assert callable(getattr(import_module(module), name))


def test_what_is_looked_for_comes_with_the_extra():
    extra = {row.partition(">")[0] for row in PROJECT["optional-dependencies"]["server"]}
    modules = {"pyyaml": "yaml", "prometheus-client": "prometheus_client"}
    assert set(NEEDED) == {modules.get(name, name) for name in extra - {"uvloop"}}


@pytest.mark.parametrize("script", ["sparrowmq", pytest.param("smq", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_the_commands(script, shell, tmp_path):
    file = tmp_path / script
    file.write_text("from sparrowmq.cli.scripts import sparrowmq; sparrowmq()")
    variable = f"_{script.upper()}_COMPLETE"
    page = (ROOT / "docs" / "operate" / "operating.md").read_text()
    assert f"{variable}={shell}_source {script}" in page

    def run(wanted, **more):
        environ = os.environ | {variable: wanted} | more
        return subprocess.run([sys.executable, str(file)], env=environ, capture_output=True, text=True, timeout=20)

    assert f"{variable}={shell}_complete" in run(f"{shell}_source").stdout
    typed = {"COMP_WORDS": f"{script} top", "COMP_CWORD": "top" if shell == "fish" else "1"}
    assert "topic" in run(f"{shell}_complete", **typed).stdout


def test_words_that_are_not_utf_8_are_told():
    code = "from sparrowmq.cli import scripts; scripts.{}()"
    for script, words, status in (("sparrowmq", "message send t", 2), ("mqadmin", "topicList -n", 1)):
        program = [sys.executable, "-c", code.format(script), *words.split(), os.fsdecode(b"\xff")]
        done = subprocess.run(program, capture_output=True, text=True, timeout=20)
        assert done.returncode == status and "the command line is not UTF-8" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("script", "words"), [("sparrowmq", ["version"]), ("mqadmin", ["help", "topicList"])])
def test_an_output_that_cannot_be_written_is_told(script, words):
    program = f"from sparrowmq.cli import scripts; scripts.{script}()"
    with open("/dev/full", "w") as full:
        line = [sys.executable, "-c", program, *words]
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
    assert done.returncode == 1 and "cannot be written: No space left" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("script", ["sparrowmq", "mqadmin", "mqnamesrv", "mqbroker", "mqproxy"])
def test_ctrl_c_during_the_imports_prints_no_traceback(script):
    program = (
        "import sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('sparrowmq.cli.main', 'sparrowmq.cli.mqadmin', 'sparrowmq.cli.servers'):\n"
        "            raise KeyboardInterrupt\n"
        "from sparrowmq.cli import scripts\n"
        "sys.meta_path.insert(0, Stop())\n"
        f"scripts.{script}()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("closed", "script", "words", "status", "told"),
    [
        ("<&-", "sparrowmq", "topic delete t -n 127.0.0.1:1", 1, "no terminal to answer"),
        ("<&-", "sparrowmq", "message send t - -n 127.0.0.1:1", 1, "the input is empty"),
        ("<&-", "sparrowmq", "message send t --file - -n 127.0.0.1:1", 1, "the input is empty"),
        (">&-", "sparrowmq", "top -n 127.0.0.1:1", 1, "cannot ask name server"),
        (">&-", "mqadmin", "help topicList", 0, ""),
        ("2>&-", "mqadmin", "topicList -n 127.0.0.1:1", 1, ""),
    ],
)
def test_closed_standard_streams_are_no_failure(closed, script, words, status, told):
    program = f"from sparrowmq.cli import scripts; scripts.{script}()"
    line = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", program, *words.split()]
    done = subprocess.run(line, capture_output=True, text=True, timeout=20)
    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
    assert told in done.stderr


def test_a_server_runs_with_all_standard_streams_closed(tmp_path):
    program = "from sparrowmq.cli import scripts; scripts.sparrowmq()"
    words = ["dev", "--port", "0", "--store", str(tmp_path / "store")]
    line = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program, *words]
    with subprocess.Popen(line) as server:
        try:
            for _ in range(400):
                if (tmp_path / "store" / "store" / "lock").exists() or server.poll() is not None:
                    break
                time.sleep(0.05)
            server.terminate()
            assert server.wait(10) == 0
        finally:
            server.kill()


def test_a_store_that_cannot_be_made_is_named_with_what_to_do():
    done = run_script("sparrowmq", "dev", "--port", "0", "--store", "/proc/x")
    assert done.returncode == 1
    assert "/proc/x cannot be used (No such file or directory); correct the path or its owner" in done.stderr
    assert "Errno" not in done.stderr
