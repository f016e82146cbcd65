"""The steps of a release: programs that must succeed, each with a line that says what it is for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


class StepFailed(Exception):
    """A step of a release did not succeed; the text says which one, and what to do."""


def say(text: str) -> None:
    """Print a line about the next step."""
    print(f"release: {text}", file=sys.stderr, flush=True)


def run(folder: Path, *command: str | Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a program whose output people see. Raises: StepFailed."""
    words = list(map(str, command))
    if status := subprocess.call(words, cwd=folder, env=environment):
        raise StepFailed(f"this command failed with status {status}: {' '.join(words)}")


def output(folder: Path, *command: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """What a program prints, without the line feed at its end. Raises: StepFailed, with what it says."""
    words = list(map(str, command))
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise StepFailed(f"this command failed: {' '.join(words)}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout.removesuffix("\n")
