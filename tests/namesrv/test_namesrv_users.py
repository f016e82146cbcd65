"""The users of a name server: from a file in the form of a broker's, and from its settings."""

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.namesrv.namesrv_access import NamesrvUsers
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.requests.user_headers import DISABLED, ENABLED, NORMAL, SUPER, UserEntry, UserTable
from sparrowmq.protocol.signature import SigningKey

FIRST = '{"username":"administrator","password":"first-secret"}'
INNER = '{"accessKey":"broker","secretKey":"inner-secret"}'


def write(path, *users):
    path.write_bytes(UserTable(users={user.username: user for user in users}).encode())
    return path


def shop(status=ENABLED):
    return UserEntry("shop", "shop-secret", NORMAL, status)


def users_of(**settings):
    return NamesrvUsers(NamesrvSettings(authentication=True, **settings))


def look_twice(users):
    users.poll()
    users.poll()


def test_users_of_the_file_count_before_those_of_the_settings(tmp_path):
    own = UserEntry("administrator", "changed-secret", SUPER, ENABLED)
    file = write(tmp_path / "users.json", shop(), own)
    found = users_of(users_file=file, first_user=FIRST, inner_credentials=INNER).by_name
    assert {name: user.is_admin for name, user in found.items()} == {
        "administrator": True,
        "broker": True,
        "shop": False,
    }
    assert found["administrator"].key.sign(b"x") == SigningKey("changed-secret").sign(b"x")


def test_accounts_of_4_become_users_if_a_setting_says_so(tmp_path):
    accounts = tmp_path / "accounts.yml"
    accounts.write_text("accounts:\n  - {accessKey: website, secretKey: website-secret, admin: true}\n")
    found = users_of(migrates_accounts=True, acl_file=accounts).by_name
    assert found["website"].is_admin


def test_a_change_takes_effect_at_the_second_look(tmp_path):
    file = write(tmp_path / "users.json", shop())
    users = users_of(users_file=file)
    before = users.by_name
    write(file, shop(DISABLED))
    users.poll()
    assert users.by_name is before
    users.poll()
    assert not users.by_name["shop"].is_enabled
    now = users.by_name
    look_twice(users)
    assert users.by_name is now


@pytest.mark.parametrize("break_it", [lambda file: file.write_text("{"), lambda file: file.unlink()])
def test_a_broken_file_changes_nothing_and_is_reported_once(tmp_path, caplog, break_it):
    file = write(tmp_path / "users.json", shop())
    users = users_of(users_file=file)
    break_it(file)
    for _ in range(3):
        look_twice(users)
    assert "shop" in users.by_name and str(file) in users.problem
    assert len(caplog.records) == 1
    write(file, shop(DISABLED))
    look_twice(users)
    assert users.problem == "" and not users.by_name["shop"].is_enabled


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "there is no user: set initAuthenticationUser=.*, or usersFile"),
        ({"users_file": "missing"}, "cannot read usersFile .*missing: No such file"),
        ({"users_file": "broken"}, "has not the form of a broker's users.json"),
        ({"first_user": '{"username":"a b","password":"secret"}'}, "user name"),
    ],
)
def test_a_start_without_users_is_refused(tmp_path, settings, why):
    (tmp_path / "broken").write_text("[]")
    if "users_file" in settings:
        settings = {"users_file": tmp_path / settings["users_file"]}
    with pytest.raises(ConfigError, match=why):
        users_of(**settings)


def test_the_file_of_a_new_broker_may_come_later(tmp_path):
    file = tmp_path / "users.json"
    users = users_of(users_file=file, first_user=FIRST)
    assert users.by_name.keys() == {"administrator"} and "does not exist yet" in users.problem
    write(file, shop())
    look_twice(users)
    assert users.by_name.keys() == {"administrator", "shop"} and users.problem == ""
