"""The users that settings name."""

import pytest

from sparrowmq.auth.first_users import first_users, no_users_error
from sparrowmq.errors import ConfigError
from sparrowmq.settings.user_settings import UserSettings

ACCOUNTS = """
accounts:
  - {accessKey: website, secretKey: website-secret, topicPerms: [orders=PUB]}
"""


def test_the_settings_name_super_users_and_accounts_of_4(tmp_path):
    (tmp_path / "accounts.yml").write_text(ACCOUNTS)
    settings = UserSettings(
        first_user='{"username":"admin","password":"s3cr3t"}',
        inner_credentials='{"accessKey":"inner","secretKey":"s3cr3t"}',
        migrates_accounts=True,
    )
    found = list(first_users(settings, None, tmp_path / "accounts.yml"))
    rows = [(user.username, user.user_type, user.user_status, bool(policies)) for user, policies in found]
    assert rows == [
        ("admin", "Super", "enable", False),
        ("inner", "Super", "enable", False),
        ("website", "Normal", "enable", True),
    ]
    assert not list(first_users(UserSettings(), None, None))


def test_a_user_with_an_invalid_name_is_refused():
    with pytest.raises(ConfigError, match="user name"):
        list(first_users(UserSettings(first_user='{"username":"a b","password":"s"}'), None, None))


def test_a_server_without_users_says_which_settings_name_some():
    assert str(no_users_error(", or usersFile")).endswith('"password":"..."}, or usersFile')
