"""The text of .properties files."""

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.settings.settings_files import parse_properties


@given(text=st.text(alphabet=" \t\f\n\r\\=:#!abnu0d83é"))
def test_properties_are_read_as_the_library_reads_them(text):
    """javaproperties follows Java's Properties.load; a server does not load it for its start (ADR 42)."""
    try:
        expected = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError:
        with pytest.raises(ValueError, match="escape"):
            parse_properties(text)
    else:
        assert parse_properties(text) == expected
