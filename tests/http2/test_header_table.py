"""The table of headers, beside that of `hpack`."""

import pytest
from hpack.exceptions import InvalidTableIndex
from hpack.table import HeaderTable as Reference
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.http2.header_table import FIXED, HeaderTable

HEADERS = st.tuples(st.binary(max_size=40), st.binary(max_size=40) | st.just(bytes(5000)))


@given(st.lists(HEADERS | st.sampled_from([0, 40, 100, 4096]), max_size=40))
def test_table_holds_the_headers_that_hpacks_holds(steps):
    table, reference = HeaderTable(), Reference()
    for step in steps:
        if isinstance(step, int):
            table.resize(step)
            reference.maxsize = step
        else:
            table.enter(step)
            reference.add(*step)
        held = [reference.get_by_index(len(FIXED) + 1 + at) for at in range(len(reference.dynamic_entries))]
        assert [table.header(len(FIXED) + 1 + at) for at in range(len(held))] == held
        with pytest.raises(InvalidTableIndex):
            table.header(len(FIXED) + 1 + len(held))


def test_fixed_headers_have_their_numbers():
    table = HeaderTable()
    assert [table.header(index) for index in (1, 8, 61)] == [
        (b":authority", b""),
        (b":status", b"200"),
        (b"www-authenticate", b""),
    ]
    with pytest.raises(InvalidTableIndex):
        table.header(0)
