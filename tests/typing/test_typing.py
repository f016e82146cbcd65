"""Type checkers take what is right, and find what is wrong: mypy --strict and pyright."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
USES, MISUSES = HERE / "uses.py", HERE / "misuses.py"
WRONG = {number for number, line in enumerate(MISUSES.read_text().splitlines(), 1) if line.endswith("# wrong")}


def mypy(tmp_path: Path) -> set[tuple[str, int]]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(tmp_path)]
    ran = subprocess.run([*command, USES, MISUSES], cwd=HERE.parents[1], capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return {(Path(path).name, int(line)) for path, line in re.findall(r"^(.*?):(\d+): error", ran.stdout, re.M)}


def pyright(tmp_path: Path) -> set[tuple[str, int]]:
    config = {
        "typeCheckingMode": "strict",
        "include": [str(USES), str(MISUSES)],
        "extraPaths": [str(HERE.parents[1])],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--outputjson",
        "-p",
        str(tmp_path),
        "--pythonpath",
        sys.executable,
    ]
    ran = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    found = json.loads(ran.stdout)["generalDiagnostics"]
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in found if each["severity"] == "error"
    }


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright])
@pytest.mark.timeout(300)
def test_what_is_right_passes_and_what_is_wrong_is_found(checker, tmp_path):
    found = checker(tmp_path)
    assert sorted(line for name, line in found if name == USES.name) == []
    in_misuses = {line for name, line in found if name == MISUSES.name}
    assert sorted(WRONG - in_misuses) == []
    assert sorted(in_misuses - WRONG) == []
