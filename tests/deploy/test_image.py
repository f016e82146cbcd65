"""The image's recipe, step by step, without containers: its own commands in fresh environments, as whoever runs this.

What a Dockerfile does to a machine is left out (apt-get, useradd). Python and the C compiler are those here. Where
there is no compiler the kernel stays plain. Packages come from where pip finds them, with the hashes of the lock.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

import sparrowmq
from tests.interop.apache import free_ports
from tools.kernel import what_is_missing

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
SKIPPED = ("apt-get ", "useradd ", "install --directory --owner=")


@dataclass
class Machine:
    """What stands for a stage of the build: an environment, and a folder in place of `/`."""

    root: Path

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True)
        venv.create(self.root / "venv", with_pip=True, symlinks=True)

    def path(self, text: str) -> Path:
        """Where a path of the image is here."""
        return self.root / text.lstrip("/")

    def run(self, command: str, folder: Path) -> None:
        if command.startswith(SKIPPED):
            return
        here = re.sub(r"(?<![\w.])/(?=(tmp|wheels)\b)", f"{self.root}/", command)
        if what_is_missing() is not None:
            here = here.replace("SPARROWMQ_KERNEL=compiled ", "")
        done = subprocess.run(
            here, shell=True, cwd=folder, env=self.environment(), capture_output=True, text=True, check=False
        )
        if done.returncode and "NewConnectionError" in done.stderr:
            pytest.skip("no package registry can be reached from here")
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def environment(self, **more: str) -> dict[str, str]:
        ours = {key: value for key, value in os.environ.items() if not key.startswith(("RMQ_", "PYTHON", "NAMESRV"))}
        return ours | {"PATH": f"{self.root}/venv/bin:{os.environ['PATH']}"} | more


@dataclass
class Image:
    """The name server's address, the machine with the store's folder, and the broker's metrics port."""

    namesrv: str
    machine: Machine
    store: Path
    metrics: int


def build(recipe: str, folder: Path) -> tuple[Machine, list[str]]:
    """Do what a recipe says; gives the last stage, and the image's command."""
    stages: dict[str, Machine] = {}
    command: list[str] = []
    for stage in re.split(r"^FROM ", recipe, flags=re.MULTILINE)[1:]:
        head, *lines = stage.splitlines()
        name = head.partition(" AS ")[2] or "image"
        machine = stages[name] = Machine(folder / name)
        place = machine.root
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "WORKDIR":
                place = machine.path(rest)
                place.mkdir(parents=True, exist_ok=True)
            elif word == "COPY":
                *origin, what, to = rest.split()
                source = stages[origin[0].removeprefix("--from=")].path(what) if origin else ROOT / what
                copy(source, machine.path(to) if to.startswith("/") else place / to)
            elif word == "RUN":
                for each in rest.split(" && "):
                    machine.run(each, place)
            elif word == "CMD":
                command = json.loads(rest)
    return stages["image"], command


def copy(source: Path, to: Path) -> None:
    """A file into a folder, or what is in a folder; of the repository only what belongs to it."""
    if source == ROOT:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file():
                (to / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, to / name)
    elif source.is_dir():
        shutil.copytree(source, to, dirs_exist_ok=True)
    else:
        to.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, to)


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answered:
            return answered.status, answered.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    """The image, with a name server and its own command running."""
    machine, command = build((ROOT / "deploy" / "Dockerfile").read_text(), tmp_path / "build")
    ha, names, port, metrics = free_ports(4)
    store = machine.path("/var/lib/sparrowmq")
    namesrv = {"listenPort": names, "kvConfigPath": store / "kvConfig.json"}
    broker = {
        "listenPort": port,
        "haListenPort": ha,
        "fastListenPort": "off",
        "namesrvAddr": f"127.0.0.1:{names}",
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": metrics,
    }
    here = [word.replace("/var/lib", f"{machine.root}/var/lib") for word in command]
    processes = []
    with ExitStack() as stack:
        for words, prefix, settings in (
            (["mqnamesrv"], "RMQ_NAMESRV_", namesrv),
            (here, "RMQ_BROKER_", broker),
        ):
            given = {f"{prefix}{key}": str(value) for key, value in settings.items()}
            output = stack.enter_context((tmp_path / f"{words[0]}.log").open("wb"))
            process = subprocess.Popen(
                [machine.path("venv/bin") / words[0], *words[1:]],
                cwd=store,
                env=machine.environment(**given),
                stdout=output,
                stderr=output,
            )
            processes.append(process)
            stack.callback(process.wait, LIMIT_S)
            stack.callback(process.terminate)
        deadline = time.monotonic() + LIMIT_S
        while (found := answer(f"http://127.0.0.1:{metrics}/readyz"))[0] != 200:
            log = (tmp_path / "mqbroker.log").read_text()
            assert all(each.poll() is None for each in processes) and time.monotonic() < deadline, f"{found}\n{log}"
            time.sleep(0.05)
        yield Image(f"127.0.0.1:{names}", machine, store, metrics)


def is_well(image: Image, *words: str) -> bool:
    """Ask the health check of the image."""
    probe = [
        str(image.machine.path("venv/bin/python")),
        "-m",
        "sparrowmq.metrics.probe",
        *words,
        str(image.metrics),
    ]
    return subprocess.run(probe, env=image.machine.environment(), check=False).returncode == 0


@pytest.mark.nightly
@pytest.mark.timeout(1500)
async def test_the_steps_of_the_image_make_servers_that_are_ready(image: Image):
    async with sparrowmq.connect(image.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=1)
        assert (await mq.send("orders", b"one")).offset == 0
    assert any((image.store / "store" / "commitlog").iterdir())
    assert is_well(image, "--ready") and is_well(image)
    (installed,) = image.machine.root.glob("venv/lib/python*/site-packages/sparrowmq")
    assert (installed / "version.py").is_file()
    if what_is_missing() is None:
        assert list(installed.glob("kernel/compiled/*/records.*.so")), "the image was to be compiled"
    assert not list(image.machine.path("/tmp").iterdir()), "what only the build needs is in the image"
