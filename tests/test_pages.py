"""The files, functions and settings that hand-written pages of docs/ name exist."""

import re
from pathlib import Path

import pytest

from sparrowmq.remoting.tls.tls_settings import ServerTlsSettings
from sparrowmq.settings.settings import keyed_fields

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sparrowmq"
PAGES = ["walk.md", "disk.md", "finding.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page):
    text = (ROOT / "docs" / "understand" / page).read_text()
    named = set(re.findall(r"\b((?:[a-z_]+/)*[a-z_]+\.py)\b", text))
    assert len(named) > 5
    files = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    names = files | {name.rpartition("/")[2] for name in files}
    assert sorted(named - names) == []


def test_every_function_that_the_walk_names_exists():
    text = (ROOT / "docs" / "understand" / "walk.md").read_text()
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    for name in [
        "data_received",
        "receive",
        "append",
        "kick",
        "drain",
        "write_out",
        "settle",
        "durability",
        "advance",
    ]:
        assert name in text
        assert f"def {name}(" in source, name


def test_the_page_on_security_names_every_setting_of_tls_and_none_that_is_none():
    text = (ROOT / "docs" / "operate" / "security.md").read_text()
    known = {key for each in keyed_fields(ServerTlsSettings) for key in each.metadata["keys"]}
    named = set(re.findall(r"`(tls(?:\.[A-Za-z]+)+|useTLS)(?:=[^`]*)?`", text))
    assert named - {"tls.properties"} == known


def test_each_decision_has_a_number_of_its_own():
    numbers = [page.name[:4] for page in sorted((ROOT / "docs" / "understand" / "adr").glob("[0-9]*.md"))]
    assert numbers == sorted(set(numbers))
    for page in (ROOT / "docs" / "understand" / "adr").glob("[0-9]*.md"):
        assert page.name == "0000-template.md" or page.read_text().startswith(f"# {page.name[:4]}. ")
