import pytest

from sparrowmq.console.routes import PAGES, dark_of


@pytest.mark.parametrize(
    ("cookie", "expected"), [(None, None), ("", None), ("0", False), ("1", True), ("x", None)]
)
def test_light_or_dark_is_what_was_chosen_or_what_the_system_says(cookie, expected):
    assert dark_of(cookie) is expected


def test_every_address_is_drawn_by_one_file():
    assert len({path for path, *_ in PAGES}) == len(PAGES) == len({draw for *_, draw in PAGES})
