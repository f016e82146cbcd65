"""tools/sparks.py: which versions of pyspark the tests run on."""

import tomllib
from pathlib import Path

from tools.sparks import ROOT, SHA256, chosen


def test_versions_come_first_and_then_pytests_arguments():
    assert chosen([]) == (list(SHA256), [])
    assert chosen(["4.1.4"]) == (["4.1.4"], [])
    assert chosen(["4.1.4", "4.3.0", "-k", "stream"]) == (["4.1.4", "4.3.0"], ["-k", "stream"])
    assert chosen(["-x"]) == (list(SHA256), ["-x"])


def test_the_locked_version_is_one_of_them_with_the_same_hash():
    lines = Path(ROOT, "requirements", "dev.txt").read_text().splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("pyspark==")]
    version = lines[at].removeprefix("pyspark==").split()[0]
    assert lines[at + 1].strip() == f"--hash=sha256:{SHA256[version]}"


def test_every_version_that_the_package_allows_is_tried():
    extras = tomllib.loads(Path(ROOT, "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "pyspark>=4.1,<5" in extras["spark"]
    assert {version.rpartition(".")[0] for version in SHA256} == {"4.1", "4.2", "4.3"}
