"""docs/use/schemas.md: its code runs against a registry, and its variables are those of the code."""

import re
from pathlib import Path

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

from sparrowmq.schemas import registry
from tests.schemas.fake_registry import FakeRegistry

PAGE = (Path(__file__).parents[1] / "docs" / "use" / "schemas.md").read_text(encoding="utf-8")
PIECES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_code_runs(capsys):
    names: dict[str, object] = {}
    with FakeRegistry() as registry:
        for piece in PIECES:
            exec(piece.replace("http://registry:8081", registry.url), names)
        assert set(registry.subjects) == {"orders-value", "moments-value"}
    assert capsys.readouterr().out == "{'id': 1, 'note': None}\n1\n"


def test_the_variables_and_the_lines_are_those_of_the_code(tmp_path):
    rows = re.findall(r"^\| `(SCHEMA_\w+)` \| `([\w.]+)=", PAGE, re.MULTILINE)
    assert len(rows) == 4
    file = tmp_path / "registry"
    file.write_text("".join(f"{line}=a:{line}\n" for _, line in rows))
    of_file = registry.load_access({registry.FILE: str(file)})
    assert of_file == registry.load_access({variable: f"a:{line}" for variable, line in rows})
    assert f"`{registry.FILE}`" in PAGE
