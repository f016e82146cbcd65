import pytest

from sparrowmq.console.pages.groups import PRODUCER_COLUMNS, producers_by_text
from sparrowmq.protocol.requests.client_bodies import ProducerEntry
from tests.console.stage import HOSTILE

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_producer_is_found_by_all_that_it_says():
    entry = ProducerEntry("client-1", "10.0.0.1:5", "GO", 401, 1000)
    assert producers_by_text({"g": [entry]}, 5000) == {"g client-1 10.0.0.1:5 GO": ("g", entry, "4 s ago")}


async def test_address_and_version_are_as_on_other_pages():
    row = ("g", ProducerEntry("client-1", "/10.0.0.1:5", "GO", 409, 1000), "4 s ago")
    cells = {column.label: column.cell(row) for column in PRODUCER_COLUMNS}
    assert cells["Address"] == "10.0.0.1:5" and cells["Version"] == "V4_9_8"


@pytest.mark.covers("S-ADM-04")
@pytest.mark.nightly
async def test_producers_on_line_are_shown(visit):
    vera = await visit("vera")
    await vera.go("producers?filter=img")
    await vera.sees(HOSTILE)
