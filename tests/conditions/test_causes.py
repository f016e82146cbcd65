"""Each cause shows within a minute in every place, and its remedy, done as doctor says it, ends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq.metrics.condition_kinds import KINDS, Severity
from tests.conditions.causes import CAUSES, Cause
from tests.conditions.field import Field
from tests.conditions.other_causes import OTHERS
from tests.conditions.other_places import OtherPlaces
from tests.crash.not_here import skipped_without
from tests.examples.live_prometheus import needs_prometheus

# The others are slow together: each takes some seconds, and some of them a minute.
IN_EVERY_RUN = {"a_forgotten_drain"}


class Fields:
    """The field that all causes share; after a failure another one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._field: Field | None = None
        self.places = OtherPlaces()

    def get(self) -> Field:
        if self._field is None:
            self._number += 1
            folder = self._folder / str(self._number)
            folder.mkdir()
            with skipped_without("a loop device"):
                field = Field(folder).__enter__()
            self._field = field
            field.quiet()
        return self._field

    def drop(self) -> None:
        if self._field is not None:
            self._field.__exit__()
        self._field = None


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fields]:
    shared = Fields(tmp_path_factory.mktemp("field"))
    yield shared
    shared.drop()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "cause",
    [
        pytest.param(each, id=each.name, marks=() if each.name in IN_EVERY_RUN else pytest.mark.slow)
        for each in [*CAUSES, *OTHERS]
    ],
)
def test_it_shows_everywhere_and_its_remedy_ends_it(fields: Fields, cause: Cause) -> None:
    field = fields.get()
    try:
        course = cause.run(field)
        with skipped_without(cause.needs):
            next(course)
        broker = field.watched[cause.where]
        remedy, process = field.shown(cause.kind, broker), broker.pid
        fields.places.see(cause.kind, broker)
        with pytest.raises(StopIteration):
            course.send(remedy)
        field.quiet()
        # A member of a group begins again with each new master, within its process.
        begins_again = broker.pid != process or cause.where == "group-e"
        assert begins_again or f"{cause.kind} is over" in broker.said_all()
    except pytest.skip.Exception:
        raise
    except BaseException:
        fields.drop()
        raise


@pytest.mark.slow
@needs_prometheus
def test_each_of_these_causes_raised_its_alert(fields: Fields, tmp_path: Path) -> None:
    assert fields.places.without_alert(tmp_path) == []


def test_every_condition_has_a_cause_here() -> None:
    named = {kind.name for kind in KINDS if kind.severity is not Severity.NOTICE}  # these have no remedy to try
    assert named == {each.kind for each in [*CAUSES, *OTHERS]}
