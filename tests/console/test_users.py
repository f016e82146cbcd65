import pytest

from sparrowmq.console.users import (
    Account,
    Accounts,
    Role,
    hash_password,
    matches,
    parse_accounts,
    parse_user,
    read_accounts,
)
from sparrowmq.errors import ConfigError

KEPT = hash_password("correct horse")


def test_only_the_own_password_opens_an_account():
    accounts = Accounts({"alice": Account("alice", Role.OPERATE, KEPT)})
    found = accounts.check("alice", "correct horse")
    assert found is not None and found.role == Role.OPERATE
    assert accounts.check("alice", "wrong") is None
    assert accounts.check("alice", "") is None
    assert accounts.check("bob", "correct horse") is None
    assert accounts.check("", "") is None


def test_an_endless_password_is_not_even_hashed():
    long = "x" * 5000
    assert Accounts({"alice": Account("alice", Role.VIEW, hash_password(long))}).check("alice", long) is None


def test_a_password_is_kept_with_a_salt_of_its_own():
    assert hash_password("correct horse") != KEPT and "correct" not in KEPT
    assert matches(KEPT, "correct horse") and not matches(KEPT, "correct horse ")


def test_a_file_has_names_roles_and_passwords(tmp_path):
    account = Account("alice", Role.VIEW, KEPT)
    path = tmp_path / "users"
    path.write_text(f"# who may come\n\n{account.line()}\n")
    found = read_accounts(path).check("alice", "correct horse")
    assert found == account


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("alice", "this is not a password hash"),
        ("alice:admin:secret", "this is not a password hash"),
        ("alice:admin:scrypt$16384$8$1$$", "this is not a password hash"),
        (f"alice:king:{KEPT}", "'king' is not a role"),
        (f"al ice:admin:{KEPT}", "is not a valid user name"),
        (f":admin:{KEPT}", "is not a valid user name"),
        (f"<b>:admin:{KEPT}", "is not a valid user name"),
        (f"bob:view:{KEPT}\nbob:admin:{KEPT}", "users:2: user bob is there twice"),
    ],
)
def test_a_wrong_line_is_told_by_its_number(line, said):
    with pytest.raises(ConfigError, match=said) as raised:
        parse_accounts(line.splitlines(), "users")
    assert "users:" in str(raised.value) and KEPT not in str(raised.value)


def test_a_file_without_users_or_no_file_is_an_error(tmp_path):
    (tmp_path / "users").write_text("# nobody\n")
    with pytest.raises(ConfigError, match="--make-user"):
        read_accounts(tmp_path / "users")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_accounts(tmp_path / "nowhere")


def test_a_file_that_changes_renews_the_accounts(tmp_path):
    path, alice = tmp_path / "users", Account("alice", Role.ADMIN, KEPT)
    path.write_text("\n".join([alice.line(), Account("bob", Role.VIEW, KEPT).line()]))
    accounts = read_accounts(path)
    assert accounts.renew() == set()
    path.write_text(Account("alice", Role.VIEW, KEPT).line())
    assert [accounts.renew() for _ in range(3)] == [set(), {"alice", "bob"}, set()]
    path.write_text("alice")
    accounts.renew()
    with pytest.raises(ConfigError, match="this is not a password hash"):
        accounts.renew()
    assert accounts.renew() == set()
    assert accounts.find("bob") is None and accounts.find("alice") == Account("alice", Role.VIEW, KEPT)


def test_a_name_alone_is_an_administrators():
    assert parse_user("alice", "--user") == ("alice", Role.ADMIN)
    assert parse_user("alice:view", "--user") == ("alice", Role.VIEW)
    with pytest.raises(ConfigError):
        parse_user("alice:", "--user")
