from types import SimpleNamespace

import pytest

from sparrowmq.auth.account_files import AccountFiles
from sparrowmq.remoting.peer import may_act_for, may_take_over, owner_of

ACCOUNTS = """
accounts:
- {accessKey: shop-key, secretKey: shop-secret}
- {accessKey: bank-key, secretKey: bank-secret}
- {accessKey: chief-key, secretKey: chief-secret, admin: true}
"""


@pytest.fixture
def peer_of(tmp_path):
    """Peers by access key. None is a peer without an account."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    by_key = AccountFiles(path).current.by_key
    return lambda key: SimpleNamespace(principal=None if key is None else by_key[key])


def test_the_owner_is_the_account_that_signed(peer_of):
    assert [owner_of(peer_of(key)) for key in ("shop-key", "chief-key", None)] == [
        "shop-key",
        "chief-key",
        None,
    ]


@pytest.mark.parametrize(
    ("key", "owner", "may_act", "may_replace"),
    [
        ("shop-key", "shop-key", True, True),
        ("shop-key", "bank-key", False, False),
        ("shop-key", "chief-key", False, False),
        ("shop-key", "deleted-key", False, True),
        ("chief-key", "bank-key", True, True),
        ("shop-key", None, True, True),
        (None, "bank-key", True, True),
        (None, None, True, True),
    ],
)
def test_only_the_owner_and_administrators_may_act(peer_of, key, owner, may_act, may_replace):
    assert (may_act_for(peer_of(key), owner), may_take_over(peer_of(key), owner)) == (may_act, may_replace)
