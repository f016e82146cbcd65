"""Plays the stories of tests/scenarios: everything that waits, in no time. README.md there tells the language.

`./run test --rewrite tests/test_scenarios.py` writes into the files what was said instead of comparing it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.script import BadScript, Step, clock_face, read, seconds, write
from tests.scenarios.stage import Stage
from tests.scenarios.stillness import Loop

FOLDER = Path(__file__).with_name("scenarios")


def scenarios() -> Iterator[Any]:
    """Each file; one that begins with `# slow` takes half a minute or more, and one with `# long` some seconds."""
    marks = {"# slow": [pytest.mark.nightly, pytest.mark.timeout(600)], "# long": [pytest.mark.slow]}
    for file in sorted(FOLDER.glob("*.txt")):
        first = file.read_text(encoding="utf-8").partition("\n")[0]
        yield pytest.param(file.stem, marks=marks.get(first, []))


@pytest.mark.parametrize("name", list(scenarios()))
def test_a_scenario_goes_as_it_is_told(name, tmp_path, request):
    file = FOLDER / f"{name}.txt"
    steps = read(file)
    said = play(steps, tmp_path)
    if request.config.getoption("rewrite"):
        write(
            file,
            [Step(step.comment, step.command, lines, step.line) for step, lines in zip(steps, said, strict=True)],
        )
        return
    wrong = [
        f"\n{file.name}:{step.line}: {step.command}\n  wanted {step.expected}\n  said   {lines}"
        for step, lines in zip(steps, said, strict=True)
        if lines != step.expected
    ]
    assert not wrong, "".join(wrong)


def test_nothing_is_still_while_a_thread_works():
    loop, went_on = Loop(), threading.Event()

    async def main() -> None:
        work = asyncio.ensure_future(asyncio.to_thread(went_on.wait, 20))
        still = asyncio.ensure_future(loop.still())
        await asyncio.sleep(0.01)
        assert not still.done()
        went_on.set()
        await still
        assert work.done() and work.result()

    loop.run(main())


def test_a_file_is_written_as_it_was_read(tmp_path):
    text = "# One.\n# Two.\ntopic T\n----\n(nothing)\n\nsend T 'a b' delay=1s\n----\nT/0 at 0\n0:01 ann: a b\n"
    file = tmp_path / "story.txt"
    file.write_text(text)
    steps = read(file)
    assert (steps[1].verb, steps[1].words, steps[1].options) == ("send", ["T", "a b"], {"delay": "1s"})
    assert steps[1].expected == ["T/0 at 0", "0:01 ann: a b"] and steps[1].line == 7
    write(file, steps)
    assert file.read_text() == text


def test_a_command_without_its_line_is_refused(tmp_path):
    (tmp_path / "story.txt").write_text("# A story.\ntopic T\n")
    with pytest.raises(BadScript, match=r"story\.txt:2: a command and below it ---- are wanted"):
        read(tmp_path / "story.txt")


def test_moments_and_durations_are_written_as_people_do():
    assert [seconds(text) for text in ("250ms", "10s", "1h30m", "1.5m")] == [0.25, 10, 5400, 90]
    assert [clock_face(moment) for moment in (0, 60.5, 3600, 17_140)] == [
        "0:00",
        "1:00.5",
        "1:00:00",
        "4:45:40",
    ]
    with pytest.raises(BadScript, match="'10 s' is no duration"):
        seconds("10 s")


def test_a_story_that_goes_otherwise_is_told_apart(tmp_path):
    steps = [Step([], "topic T", [], 1), Step([], "send T x queue=0", [], 4), Step([], "fly", [], 7)]
    assert play(steps[:2], tmp_path / "store") == [["(nothing)"], ["T/0 at 0"]]
    with pytest.raises(BadScript, match="line 7: no verb 'fly'"):
        play(steps, tmp_path / "other")


def play(steps: list[Step], folder: Path) -> list[list[str]]:
    """What each step says. A first step `broker name=value ...` gives the broker's settings."""
    said: list[list[str]] = []
    settings: dict[str, Any] = {}
    if steps[0].verb == "broker":
        settings = {name: int(value) if value.isdigit() else value for name, value in steps[0].options.items()}

    async def main() -> None:
        async with Stage(folder, loop, settings) as stage:
            said.extend([await one(stage, step) for step in steps])

    async def one(stage: Stage, step: Step) -> list[str]:
        return ["ok"] if step.verb == "broker" else await stage.play(step)

    loop = Loop()
    loop.run(main())
    return said
