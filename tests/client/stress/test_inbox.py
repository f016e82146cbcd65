"""The effects of an inbox: parts of a run share them, and one that happened twice is found."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from tests.client.stress.inbox import EFFECTS, FILE, Effects


def test_a_second_part_finds_what_the_first_one_doubled(tmp_path: Path) -> None:
    file = tmp_path / FILE
    Effects(file)
    with sa.create_engine(f"sqlite:///{file}").begin() as connection:
        connection.execute(sa.insert(EFFECTS), [{"message": name} for name in ("once", "twice", "twice")])
    effects = Effects(file)
    assert effects.doubled() == ["twice"]
    assert effects.count() == 3
