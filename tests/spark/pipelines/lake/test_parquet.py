"""sparrowmq.spark.pipelines.lake.parquet: a folder that every reader may look into at any time."""

import os

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from tests.spark.pipelines.lake.tables import Table


@pytest.mark.guards("Folder.__init__: drop _finish")
@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_crash_behind_the_commit_is_finished_by_the_next_start(tmp_path, monkeypatch, moved):
    table = Table(tmp_path, "parquet")
    table.add(0, 1)
    move = os.replace
    moves: list[str] = []

    def dying(source, target):
        if len(moves) == moved:
            raise KeyboardInterrupt
        moves.append(target)
        move(source, target)

    staged = table.staged(1, 2, 3, 4, files=3)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying)
        with pytest.raises(KeyboardInterrupt):
            table.open().commit(1, staged)
    assert len(table.numbers()) == 1 + moved
    assert table.open().last_batch() == 1
    assert table.numbers() == [1, 2, 3, 4]


def test_old_commits_go(tmp_path):
    table = Table(tmp_path, "parquet")
    for batch in range(25):
        table.add(batch, batch)
    assert len(list((table.place.state / "commits").iterdir())) == 10
    assert table.open().last_batch() == 24
    assert table.numbers() == list(range(25))
