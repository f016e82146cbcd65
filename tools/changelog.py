"""Move the notes of changes/ into CHANGELOG.md, as the section of the version in sparrowmq/version.py.

    changes/batch-limit.fix.md                      ## 0.2.0 (2027-01-31)
    changes/recall.feature.md          ──────>      ### Added ...  ### Fixed ...

`python -m tools.changelog` writes CHANGELOG.md with today's date and deletes the notes. `./run publish` does it, too.
Nothing changes if the section has its date and there are no notes.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sparrowmq.version import VERSION

ROOT: Final = Path(__file__).parents[1]
# The kinds of notes, and the headings of https://keepachangelog.com that they go below.
HEADINGS: Final = {"feature": "Added", "change": "Changed", "removal": "Removed", "fix": "Fixed"}
UNRELEASED: Final = "unreleased"
WIDTH: Final = 120

Notes = Mapping[str, Sequence[str]]  # by kind


class ChangelogError(Exception):
    """CHANGELOG.md or changes/ is not ready for a version."""


def main() -> int:
    try:
        changed = collect(ROOT, VERSION, datetime.now(UTC).date().isoformat())
    except ChangelogError as error:
        print(f"changelog: {error}", file=sys.stderr)
        return 1
    print(f"CHANGELOG.md: {f'wrote the section of {VERSION}' if changed else 'nothing to do'}")
    return 0


def collect(root: Path, version: str, day: str) -> bool:
    """Write the section of a version and delete the notes; returns whether anything changed. Raises: ChangelogError."""
    file = root / "CHANGELOG.md"
    text = file.read_text(encoding="utf-8")
    files = note_files(root / "changes")
    changed = released(text, version, day, read_notes(files))
    file.write_text(changed, encoding="utf-8")
    for note in files:
        note.unlink()
    return changed != text


def note_files(folder: Path) -> list[Path]:
    """The notes in a folder, which may be missing, by name."""
    return sorted(file for file in folder.glob("*.md") if file.name != "README.md")


def read_notes(files: Sequence[Path]) -> dict[str, list[str]]:
    """The texts of notes by their kind, in the order of `HEADINGS`. Raises: ChangelogError."""
    notes: dict[str, list[str]] = {kind: [] for kind in HEADINGS}
    for file in files:
        _, _, kind = file.stem.rpartition(".")
        text = " ".join(file.read_text(encoding="utf-8").split())
        if kind not in notes or not text:
            raise ChangelogError(
                f"{file.name}: the name must be <topic>.<kind>.md with a kind of {', '.join(HEADINGS)}, and the "
                "file must have a text"
            )
        notes[kind].append(text)
    return {kind: texts for kind, texts in notes.items() if texts}


def section(text: str, version: str) -> str | None:
    """The section of a version in the text of CHANGELOG.md with its heading, or None."""
    found = re.search(rf"^## {re.escape(version)} \(.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[0] if found else None


def is_dated(text: str, version: str) -> bool:
    """Whether the section of a version has a date."""
    return re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", text, re.MULTILINE) is not None


def released(text: str, version: str, day: str, notes: Notes) -> str:
    """The text of CHANGELOG.md with the section of a version that is released that day. Raises: ChangelogError."""
    if is_dated(text, version):
        if notes:
            raise ChangelogError(f"{version} has its date, and changes/ has more notes; raise VERSION")
        return text
    before = section(text, version)
    if before is None and not notes:
        raise ChangelogError(f"CHANGELOG.md has no section for {version}, and changes/ has no notes for it")
    heading = f"## {version} ({day})\n"
    if before is None:
        first = re.search(r"^## ", text, re.MULTILINE)
        place = first.start() if first else len(text)
        return text[:place] + with_notes(heading, notes) + "\n" * bool(first) + text[place:]
    dated = before.replace(f"## {version} ({UNRELEASED})\n", heading, 1)
    after = with_notes(dated.rstrip("\n") + "\n", notes) + "\n" * before.endswith("\n\n")
    return text.replace(before, after, 1)


def with_notes(part: str, notes: Notes) -> str:
    """A section with notes below their headings at its end; headings that the section has already are used."""
    for kind, texts in notes.items():
        title, points = f"### {HEADINGS[kind]}\n", "".join(map(_point, texts))
        if title in part:
            begin, _, rest = part.partition(title)
            own, mark, others = rest.partition("\n### ")
            part = f"{begin}{title}{own.rstrip()}\n{points}{mark}{others}"
        else:
            part = f"{part}\n{title}\n{points}"
    return part


def _point(text: str) -> str:
    filled = textwrap.fill(
        text,
        WIDTH,
        initial_indent="- ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled + "\n"


if __name__ == "__main__":
    sys.exit(main())
