"""The long form of test_our_mqadmin.py: every command with good and bad options, by our tool and by Java's.

Slow: six clusters and four hundred steps on each, of which many wait for what does not answer. Java's tool is 4.9.7's,
also beside the broker of 5.4.0, where both tools meet what neither was made for.
"""

from __future__ import annotations

import io
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import pytest

from sparrowmq.cli.mqadmin.main import JAVA_EXIT_CODES, run
from sparrowmq.cli.mqadmin.subcommand_table import COMMANDS_OF_4
from tests.interop.kits import java
from tests.interop.mqadmin_steps import ENDLESS, steps
from tests.interop.servers import APACHE, OURS
from tests.interop.test_mqadmin import play

STEPS = steps()
NEWER: Final = "apache-5.4.0"
# Java's 4.9.7 does not know how brokers since 4.9.5 spell what they gave out.
BETTER: Final = {"exportMetrics -c DefaultCluster -f {folder}", "clusterList"}
# They have options of 5.x, too, so their usage is longer.
WIDER: Final = {"updateSubGroup", "updateTopic"}

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]


def our_tool(*words):
    out, err = io.StringIO(), io.StringIO()
    code = run([*words, JAVA_EXIT_CODES], out, err)
    return {"out": out.getvalue(), "err": err.getvalue(), "exit": code}


def javas_tool_survives() -> bool:
    """Whether one JVM can play commands that end their process."""
    asked = [java(), "-Djava.security.manager=allow", "-version"]
    return subprocess.run(asked, capture_output=True, check=False, timeout=60).returncode == 0


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """By the tool and the side: what each step said."""
    if not javas_tool_survives():
        pytest.skip("this Java cannot stop a command from ending its process; 17 to 23 can")
    folder = tmp_path_factory.mktemp("mqadmin-steps")
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(3) as three:
        patch.chdir(folder)
        begun = {
            (tool, side): three.submit(
                partial(play, side, folder / f"{tool}-{side}", script=STEPS, survives=True),
                our_tool if tool == "ours" else None,
            )
            for tool in ("java", "ours")
            for side in (APACHE, OURS, NEWER)
        }
        return {key: playing.result() for key, playing in begun.items()}


@pytest.mark.parametrize("command", STEPS)
def test_javas_tool_says_of_us_what_it_says_of_apache(told, command):
    assert told["java", OURS][command] == told["java", APACHE][command]


@pytest.mark.parametrize("side", [OURS, APACHE, NEWER])
@pytest.mark.parametrize("command", STEPS)
def test_our_tool_says_what_javas_says(told, command, side):
    if side == NEWER and command in BETTER:
        assert "NullPointerException" in told["java", side][command]
        assert "Exception" not in told["ours", side][command]
        return
    ours, javas = told["ours", side][command], told["java", APACHE if side == OURS else side][command]
    if command.split()[0] in WIDER and javas.startswith("usage:"):
        assert options_in(javas) < options_in(ours)
    else:
        assert ours == javas


def options_in(usage: str) -> set[str]:
    return {line for line in usage.splitlines() if line.startswith(" -")}


def test_there_are_four_hundred_steps_and_every_command_is_among_them():
    assert len(STEPS) >= 400
    played = {step.split()[0] for step in STEPS}
    assert {each.name for each in COMMANDS_OF_4} - ENDLESS <= played
