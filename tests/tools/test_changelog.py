from pathlib import Path

import pytest

from sparrowmq.version import VERSION
from tools.changelog import ChangelogError, collect, is_dated, note_files, read_notes, released, section

ROOT = Path(__file__).parents[2]
FIRST = "# Changelog\n\nWords.\n\n## 0.1.0 (unreleased)\n\nThe first version.\n\n### Broker\n\n- It runs.\n"
DATED = FIRST.replace("unreleased", "2026-12-01")
DAY = "2027-01-31"


def test_changelog_of_the_project_has_its_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert section(text, VERSION) is not None


def test_notes_of_the_project_can_be_collected():
    read_notes(note_files(ROOT / "changes"))


def test_the_first_version_gets_its_date():
    assert released(FIRST, "0.1.0", "2026-12-01", {}) == DATED
    assert is_dated(DATED, "0.1.0") and not is_dated(FIRST, "0.1.0")


def test_a_dated_section_stays_as_it_is():
    assert released(DATED, "0.1.0", DAY, {}) == DATED


def test_notes_become_a_section_above_the_others():
    text = released(DATED, "0.2.0", DAY, {"feature": ["New `this`.", "New that."], "fix": ["No crash."]})
    assert text == DATED.replace(
        "## 0.1.0",
        f"## 0.2.0 ({DAY})\n\n### Added\n\n- New `this`.\n- New that.\n\n### Fixed\n\n- No crash.\n\n## 0.1.0",
    )
    assert section(text, "0.2.0") == text[text.index("## 0.2.0") : text.index("## 0.1.0")]
    assert section(text, "0.3.0") is None


def test_notes_join_a_section_that_was_begun_by_hand():
    begun = DATED.replace("## 0.1.0", "## 0.2.0 (unreleased)\n\n### Added\n\n- One.\n\n### Fixed\n\n- Two.\n\n## 0.1.0")
    text = released(begun, "0.2.0", DAY, {"feature": ["Three."], "removal": ["Four."]})
    assert section(text, "0.2.0") == (
        f"## 0.2.0 ({DAY})\n\n### Added\n\n- One.\n- Three.\n\n### Fixed\n\n- Two.\n\n### Removed\n\n- Four.\n\n"
    )
    assert text.endswith(DATED[DATED.index("## 0.1.0") :])


def test_the_first_section_of_an_empty_changelog_is_its_end():
    assert released("# Changelog\n\n", "0.1.0", DAY, {"fix": ["One."]}) == (
        f"# Changelog\n\n## 0.1.0 ({DAY})\n\n### Fixed\n\n- One.\n"
    )


@pytest.mark.parametrize(
    ("text", "notes", "words"),
    [(DATED, {"fix": ["Late."]}, "raise VERSION"), ("# Changelog\n", {}, "no section for 0.1.0")],
)
def test_a_version_that_is_not_ready_is_refused(text, notes, words):
    with pytest.raises(ChangelogError, match=words):
        released(text, "0.1.0", DAY, notes)


def test_long_notes_are_wrapped_and_words_stay_whole():
    text = released("# Changelog\n", "0.1.0", DAY, {"fix": ["one-two " * 30]})
    lines = text.splitlines()
    assert max(map(len, lines)) <= 120 and all(line.startswith(("- one-two", "  one-two")) for line in lines[-3:])


def test_notes_are_moved_into_the_changelog(tmp_path):
    (tmp_path / "CHANGELOG.md").write_text(DATED)
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("words")
    (tmp_path / "changes" / "batch-limit.fix.md").write_text("A batch\nis refused.\n")
    assert collect(tmp_path, "0.2.0", DAY)
    assert "- A batch is refused.\n" in (tmp_path / "CHANGELOG.md").read_text()
    assert [file.name for file in (tmp_path / "changes").iterdir()] == ["README.md"]
    assert not collect(tmp_path, "0.2.0", DAY)


@pytest.mark.parametrize(("name", "text"), [("a.md", "x"), ("a.bug.md", "x"), ("a.fix.md", " \n")])
def test_a_wrong_note_is_refused_and_nothing_is_written(tmp_path, name, text):
    (tmp_path / "CHANGELOG.md").write_text(DATED)
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / name).write_text(text)
    with pytest.raises(ChangelogError, match=name):
        collect(tmp_path, "0.2.0", DAY)
    assert (tmp_path / "CHANGELOG.md").read_text() == DATED and (tmp_path / "changes" / name).exists()
