"""What the tests of the site share: its generated pages, for which all tests are read."""

import pytest

from tools import docs


@pytest.fixture(scope="session")
def pages():
    return docs.generated_pages()
