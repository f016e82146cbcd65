import pytest
from click.testing import CliRunner

from sparrowmq.cli.servers.console import PASSWORD, accounts_of, console, one_time_account
from sparrowmq.console.users import Role, parse_accounts
from sparrowmq.errors import ConfigError


def test_without_users_there_is_one_with_a_password_of_this_start():
    accounts, password = one_time_account()
    found = accounts.check("admin", password)
    assert found is not None and found.role == Role.ADMIN
    assert accounts.check("admin", "admin") is None
    assert one_time_account()[1] != password
    told = accounts_of(None, None)[1]
    assert told.startswith(" (user admin, password ")


def test_a_line_for_the_file_is_made_and_works():
    made = CliRunner().invoke(console, ["--make-user", "vera:view"], input="long enough\nlong enough\n")
    assert made.exit_code == 0, made.output
    line = made.stdout.splitlines()[-1]
    assert "long enough" not in line
    assert parse_accounts([line], "users")["vera"].role == Role.VIEW


def test_a_short_password_is_refused():
    made = CliRunner().invoke(console, ["--make-user", "vera:view"], env={PASSWORD: "short"})
    assert made.exit_code == 2 and "fewer than 8 characters" in made.output


def test_users_come_from_a_file_or_one_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv(PASSWORD, "long enough")
    accounts, told = accounts_of(None, "olga:operate")
    found = accounts.check("olga", "long enough")
    assert found is not None
    assert found.role == Role.OPERATE and told == ""
    (tmp_path / "users").write_text(found.line())
    assert accounts_of(str(tmp_path / "users"), None)[0].check("olga", "long enough") == found
    with pytest.raises(ConfigError, match="not both"):
        accounts_of("users", "olga")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "--certificate and --key, or --insecure"),
        (["--users", "nowhere"], "cannot be read"),
        (["--user", "a b"], "is not a valid user name"),
        (["--prefix", "mq/"], "write it as /mq"),
        (["-n", "nonsense:port"], "nonsense"),
        (
            ["--history", "/dev/null/kept"],
            "--history /dev/null/kept: it cannot be written to: Not a directory; name another folder, or --history off",
        ),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(words, said):
    run = CliRunner().invoke(console, words)
    assert run.exit_code == 2 and said in run.output
