"""Install a wheel from its file into fresh environments, and try what each of them is for.

    sparrowmq             `import sparrowmq` and `sparrowmq --version`, with nothing but the base dependencies
    sparrowmq[server]     mqnamesrv and mqbroker start, a program sends and receives, both servers stop in order
    sparrowmq[testing]    pytest runs the example of README.md

The dependencies come from where pip's settings say.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.steps import StepFailed, output, run, say

START_S: Final = 60.0
STOP_S: Final = 30.0
CLIENT_ONLY: Final = """
import importlib.util, sparrowmq
sparrowmq.connect("127.0.0.1:9876")
assert importlib.util.find_spec("click") is None, "click is there, so this is no client-only install"
print(sparrowmq.__version__)
"""
SEND_AND_RECEIVE: Final = """
import asyncio, sparrowmq

async def main():
    async with asyncio.timeout(60), sparrowmq.connect() as mq:
        await mq.send("orders", b"paid", tag="paid")
        async with mq.subscribe("orders", group="billing", start="earliest") as orders:
            async with (await anext(orders)).process() as order:
                pass
    print("received")

asyncio.run(main())
"""
_PYTHON_BLOCK: Final = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def check(wheel: Path, version: str, readme: Path) -> None:
    """Try a wheel in three fresh environments. Raises: StepFailed."""
    with tempfile.TemporaryDirectory(prefix="sparrowmq-release-") as name:
        folder = Path(name)
        check_client(installed(folder / "client", wheel), version)
        check_servers(installed(folder / "server", wheel, "server"))
        check_testing(installed(folder / "testing", wheel, "testing"), readme)


def installed(venv: Path, wheel: Path, extra: str = "") -> Path:
    """A fresh environment with the wheel; returns the folder of its programs. Raises: StepFailed."""
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    say(f"installing {wheel.name}{f' with [{extra}]' if extra else ''} into a fresh environment")
    run(Path.cwd(), sys.executable, "-m", "venv", venv)
    run(venv, venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q", wanted)
    return venv / "bin"


def check_client(programs: Path, version: str) -> None:
    """Import the client, and ask for the version in each way. Raises: StepFailed."""
    said = in_environment(programs, "python", "-c", CLIENT_ONLY)
    if said != version:
        raise StepFailed(f"the client-only install is version {said}, not {version}")
    for command in (["sparrowmq"], ["smq"], ["mqbroker"], ["mqnamesrv"], ["python", "-m", "sparrowmq"]):
        said = in_environment(programs, *command, "--version")
        if said != f"sparrowmq, version {version}":
            raise StepFailed(f"`{' '.join(command)} --version` of the client-only install says {said!r}")


def check_servers(programs: Path) -> None:
    """Start both servers, send a message and receive it. Raises: StepFailed."""
    store = programs.parent / "store"
    with serving(programs, "mqnamesrv", "--set", f"kvConfigPath={store}/kv.json") as namesrv:
        broker = [
            "mqbroker",
            "-n",
            namesrv,
            "--set",
            f"storePathRootDir={store}",
            "--set",
            "fastListenPort=off",
        ]
        with serving(programs, *broker, "--set", "haListenPort=off"):
            program = in_environment(programs, "python", "-c", SEND_AND_RECEIVE, NAMESRV_ADDR=namesrv)
    if program != "received":
        raise StepFailed(f"the program that sends and receives says {program!r}")


def check_testing(programs: Path, readme: Path) -> None:
    """Run the test that README.md shows. Raises: StepFailed."""
    folder = programs.parent / "tests"
    folder.mkdir()
    (folder / "test_readme.py").write_text(example_test(readme.read_text(encoding="utf-8")), encoding="utf-8")
    say(in_environment(programs, "python", "-m", "pytest", "-q", "-W", "ignore", folder).splitlines()[-1])


def example_test(readme: str) -> str:
    """The test in the text of README.md. Raises: StepFailed, there is none."""
    for block in _PYTHON_BLOCK.findall(readme):
        if re.search(r"^(async )?def test_", block, re.MULTILINE):
            return str(block)
    raise StepFailed("README.md shows no test for pytest")


@contextmanager
def serving(programs: Path, *command: str) -> Iterator[str]:
    """Run a server at a free port; gives its address. Raises: StepFailed, it does not start, or not stop in order."""
    words = [str(programs / command[0]), *command[1:], "--set", "listenPort=0"]
    log = programs.parent / f"{command[0]}.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=errors, env=environment_of(programs), cwd=programs.parent
        ) as server,
    ):
        try:
            yield address_of(server, log)
            server.send_signal(signal.SIGTERM)
            if status := server.wait(STOP_S):
                raise StepFailed(f"{command[0]} ended with status {status}:\n{log.read_text()}")
        finally:
            server.kill()


def address_of(server: subprocess.Popen[bytes], log: Path) -> str:
    """The address in the line that a server prints when it is ready. Raises: StepFailed, it prints none in time."""
    assert server.stdout is not None, "it is a pipe"
    ready, _, _ = select.select([server.stdout], [], [], START_S)
    line = server.stdout.readline().decode() if ready else ""
    found = re.search(r"(\d+(?:\.\d+){3}:\d+)\]? ", f"{line.strip()} ")
    if found is None:
        raise StepFailed(f"the server does not say its address: {line.strip()!r}\n{log.read_text()}")
    return found[1]


def in_environment(programs: Path, command: str, *arguments: str | Path, **variables: str) -> str:
    """What a program of an environment prints. Raises: StepFailed."""
    environment = environment_of(programs) | variables
    return output(programs.parent, programs / command, *arguments, environment=environment)


def environment_of(programs: Path) -> dict[str, str]:
    """The variables of a user who has nothing but this environment: a home of its own, and no settings."""
    return own_variables(os.environ) | {
        "HOME": str(programs.parent),
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }


def own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables without those that settings of SparrowMQ, Python or pytest come from."""
    settings = re.compile("NAMESRV_ADDR|ROCKETMQ_|RMQ_|SPARROWMQ_|PYTHON|PYTEST_|VIRTUAL_ENV")
    return {name: value for name, value in environment.items() if not settings.match(name)}
