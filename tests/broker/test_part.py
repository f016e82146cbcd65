"""What the parts bring: the periodic tasks in their periods, and everything that changed is saved by them."""

from typing import Any

import pytest

from sparrowmq.broker.part import Part
from tests.broker.handlers.conftest import Desk


def parts_of(desk: Desk) -> list[Part]:
    settings = desk.settings
    return [
        desk.storage,
        desk.topics.file.part("topics", 1),
        desk.groups.file.part("groups", 1),
        desk.offsets.file.part("offsets", settings.save_offsets_ms / 1000),
        desk.delayed.part(settings.save_delays_ms / 1000),
        desk.clients.part(),
        Part(chores=desk.locks.chores()),
        desk.status.part(),
    ]


@pytest.mark.covers("S-DELAY-05")
async def test_the_chores_save_what_changed(tmp_path: Any, clock: Any) -> None:
    desk = Desk(tmp_path, clock)
    chores = [chore for part in parts_of(desk) for chore in part.chores]
    assert {chore.name: chore.period_s for chore in chores} == {
        "save topics": 1,
        "save groups": 1,
        "save offsets": 5,
        "save delay offsets": 10,
        "close silent clients": 10,
        "notify consumer groups": 1,
        "forget expired locks": 60,
        "sample rates": 1,
    }
    desk.create("Orders")
    desk.groups.ensure("g")
    desk.offsets.commit("g", "Orders", 0, 1)
    for chore in chores:
        done = chore.do()
        if done is not None:
            await done
    saved = {file.name for file in (tmp_path / "config").iterdir()}
    assert saved == {"topics.json", "subscriptionGroup.json", "consumerOffset.json"}
    desk.store.close()


async def test_what_changed_is_saved_when_the_broker_stops(tmp_path: Any, clock: Any) -> None:
    desk = Desk(tmp_path, clock)
    desk.create("Orders")
    desk.groups.ensure("g")
    desk.offsets.commit("g", "Orders", 0, 1)
    for part in parts_of(desk):
        for save in part.saves:
            await save()
    saved = {file.name for file in (tmp_path / "config").iterdir()}
    assert saved == {"topics.json", "subscriptionGroup.json", "consumerOffset.json"}
    desk.store.close()


def test_names_of_tasks_are_told_apart(tmp_path: Any, clock: Any) -> None:
    desk = Desk(tmp_path, clock)
    names = [task.name for part in parts_of(desk) for task in part.tasks]
    assert names == ["store", "disk", "delayed delivery"]
    desk.store.close()
