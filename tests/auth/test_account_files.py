"""Files with accounts: found, taken over when they change, and written."""

import logging
import os
import resource

import pytest

from sparrowmq.auth import account_files
from sparrowmq.auth.account_files import AccountFiles, load_account_files
from sparrowmq.auth.users import PUB
from sparrowmq.errors import ConfigError
from tests.auth.asked import SAMPLE

HOUR_NS = 3600 * 10**9


def account(name: str, **fields: str) -> str:
    more = "".join(f"  {key}: {value}\n" for key, value in fields.items())
    return f"- accessKey: {name}\n  secretKey: 12345678\n{more}"


def write(path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def look_twice(files: AccountFiles) -> None:
    """Whatever changes holds only when it has stayed for one look."""
    files.poll()
    files.poll()


@pytest.fixture
def main(tmp_path):
    path = tmp_path / "conf" / "plain_acl.yml"
    write(path, SAMPLE)
    return path


@pytest.mark.covers("S-ACL-01")
def test_the_accounts_of_a_home_are_those_of_all_its_files(tmp_path, main):
    write(tmp_path / "conf" / "acl" / "more.yml", "accounts:\n" + account("accountOne"))
    write(tmp_path / "conf" / "acl" / "deep" / "more.yaml", "accounts:\n" + account("accountTwo"))
    write(tmp_path / "conf" / "acl" / "none.txt", "[")
    files = load_account_files(tmp_path, None)
    assert set(files.current.by_key) == {"RocketMQ", "rocketmq2", "accountOne", "accountTwo"}
    assert files.current.addresses.has(bytes([192, 168, 0, 5]))
    assert set(load_account_files(tmp_path, main).current.by_key) == {"RocketMQ", "rocketmq2"}


def test_the_first_of_two_accounts_of_one_name_counts(tmp_path, main, caplog):
    write(tmp_path / "conf" / "acl" / "more.yml", "accounts:\n" + account("RocketMQ", admin="true"))
    files = load_account_files(tmp_path, None)
    assert files.current.by_key["RocketMQ"].is_admin
    assert "account 'RocketMQ' is in" in caplog.text and "more.yml too" in caplog.text


def test_there_must_be_a_file(tmp_path):
    with pytest.raises(ConfigError, match=r"write .*conf/plain_acl.yml"):
        load_account_files(tmp_path, None)
    with pytest.raises(ConfigError, match=r"write .*mine.yml"):
        load_account_files(None, tmp_path / "mine.yml")
    with pytest.raises(ConfigError, match="set ROCKETMQ_HOME"):
        load_account_files(None, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accounts: [", "is not YAML"),
        ("accounts:\n- accessKey: short\n  secretKey: 12345678\n", "account 'short': its accessKey"),
        ("globalWhiteRemoteAddresses: [10.*]\n", "'10.*' is no address"),
        ("accounts:\n- secretKey: 12345678\n", "account '': its accessKey has 0"),
    ],
)
def test_a_broken_file_ends_the_start_and_is_named(main, text, words):
    main.write_text(text)
    with pytest.raises(ConfigError) as caught:
        AccountFiles(main)
    assert words in str(caught.value) and str(main) in str(caught.value)


def test_a_file_that_cannot_be_read_is_told(main):
    main.unlink()
    main.mkdir()
    with pytest.raises(ConfigError, match=r"cannot read .*plain_acl.yml"):
        AccountFiles(main)


@pytest.mark.covers("S-ACL-01")
def test_a_change_holds_after_the_next_look(tmp_path, main):
    files = load_account_files(tmp_path, None)
    first = files.current
    look_twice(files)
    assert files.current is first
    main.write_text("accounts:\n" + account("accountOne"))
    look_twice(files)
    second = files.current
    look_twice(files)
    assert set(second.by_key) == {"accountOne"} and files.current is second
    write(tmp_path / "conf" / "acl" / "more.yml", "accounts:\n" + account("accountTwo"))
    look_twice(files)
    assert set(files.current.by_key) == {"accountOne", "accountTwo"}
    (tmp_path / "conf" / "acl" / "more.yml").unlink()
    look_twice(files)
    assert set(files.current.by_key) == {"accountOne"}


def test_a_file_that_is_just_being_written_is_left_alone(main, caplog):
    main.write_text(SAMPLE + "    topicPerms: [topicA=PUB]\n")
    files = AccountFiles(main)
    before = files.current
    whole = SAMPLE + "    topicPerms: [topicB=PUB]\n"
    for length in (0, SAMPLE.index("  - accessKey: rocketmq2"), len(SAMPLE), len(whole)):
        main.write_text(whole[:length])
        files.poll()
        assert files.current is before and files.current.by_key["rocketmq2"].perms == {"topicA": 1}
    files.poll()
    assert set(files.current.by_key) == {"RocketMQ", "rocketmq2"}
    assert files.current.by_key["rocketmq2"].perms == {"topicB": 1}
    assert "ERROR" not in caplog.text


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_a_file_that_becomes_empty_is_broken(main, caplog, text):
    files = AccountFiles(main)
    main.write_text(text)
    look_twice(files)
    main.write_text(text + "\n")
    look_twice(files)
    assert set(files.current.by_key) == {"RocketMQ", "rocketmq2"}
    assert caplog.text.count("plain_acl.yml is empty") == 1
    main.write_text("accounts: []\n")
    look_twice(files)
    assert not files.current.by_key


def test_a_file_that_was_empty_from_the_start_may_stay_so(tmp_path, main):
    more = tmp_path / "conf" / "acl" / "more.yml"
    write(more, "")
    files = load_account_files(tmp_path, None)
    main.write_text("accounts:\n" + account("accountOne"))
    look_twice(files)
    assert set(files.current.by_key) == {"accountOne"}


def test_a_file_that_changed_by_hand_is_not_overwritten_before_it_holds(tmp_path, main):
    files = load_account_files(tmp_path, None)
    for text in (SAMPLE[:60], ""):
        main.write_text(text)
        for change in (
            lambda: files.with_account({"accessKey": "accountOne", "secretKey": "87654321"}, 7),
            lambda: files.without_account("RocketMQ", 7),
            lambda: files.with_addresses(["10.0.0.1"], "", 7),
        ):
            with pytest.raises(ConfigError, match=r"plain_acl.yml has changed, .* try again"):
                change()
    main.write_text(SAMPLE + "  - {accessKey: accountTwo, secretKey: 12345678}\n")
    look_twice(files)
    assert "accountTwo" in files.with_addresses(["10.0.0.1"], "", 7).accounts.by_key


def test_what_changed_by_hand_beside_a_change_holds_after_the_next_looks(tmp_path, main, caplog):
    more = tmp_path / "conf" / "acl" / "more.yml"
    write(more, "accounts:\n" + account("accountOne"))
    files = load_account_files(tmp_path, None)
    write(more, "accounts:\n" + account("accountTwo"))
    change = files.with_account({"accessKey": "accountSix", "secretKey": "87654321"}, 7)
    change.write()
    files.apply(change)
    assert {"accountSix", "accountOne"} < set(files.current.by_key)
    look_twice(files)
    assert {"accountSix", "accountTwo"} < set(files.current.by_key) and "accountOne" not in files.current.by_key


def test_what_was_changed_over_the_wire_is_not_taken_again(main, caplog):
    caplog.set_level(logging.INFO)
    files = AccountFiles(main)
    for number in range(2):
        change = files.with_account({"accessKey": "RocketMQ", "topicPerms": [f"topic{number}=PUB"]}, 7)
        change.write()
        files.apply(change)
        assert files.current.by_key["RocketMQ"].perms["topic" + str(number)] == 1
    look_twice(files)
    assert not caplog.records


def test_what_is_broken_changes_nothing_and_is_told_once_until_it_is_mended(main, caplog):
    files = AccountFiles(main)
    caplog.set_level(logging.INFO)
    for number in range(3):
        main.write_text("accounts: [")
        os.utime(main, ns=(0, number * HOUR_NS))
        look_twice(files)
    assert set(files.current.by_key) == {"RocketMQ", "rocketmq2"}
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert files.problem.startswith("the accounts do not change: ") and str(main) in files.problem
    main.write_text("accounts:\n" + account("accountOne"))
    look_twice(files)
    assert files.problem == ""
    assert set(files.current.by_key) == {"accountOne"}
    assert "1 accounts of 1 files are in effect" in caplog.text
    main.unlink()
    look_twice(files)
    assert set(files.current.by_key) == {"accountOne"}, "no file is broken too"


def test_a_file_that_cannot_be_read_is_told_once_and_tried_again(main, caplog):
    files = AccountFiles(main)
    main.write_text("accounts:\n" + account("accountOne"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # which refuses root too
    try:
        for _ in range(5):
            files.poll()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert set(files.current.by_key) == {"RocketMQ", "rocketmq2"}
    assert caplog.text.count("(Too many open files)") == 1
    files.poll()
    assert set(files.current.by_key) == {"accountOne"}


def test_a_file_that_changed_in_place_and_kept_its_time_and_size_is_taken(main):
    files, before = AccountFiles(main), main.stat()
    main.write_text(SAMPLE.replace("12345678", "87654321"))
    os.utime(main, ns=(before.st_atime_ns, before.st_mtime_ns))
    look_twice(files)
    assert files.current.documents[main].accounts[0]["secretKey"] == "87654321"


def test_odd_words_and_keys_are_told(main, caplog):
    main.write_text("accounts:\n" + account("accountOne", defaultTopicPerm="ALL", topicPerm="x"))
    AccountFiles(main)
    assert "'ALL' is not a permission and counts as DENY" in caplog.text
    assert "the unknown key topicPerm is ignored" in caplog.text


def test_an_account_is_written_where_it_stands_and_a_new_one_into_the_main_file(tmp_path, main):
    more = tmp_path / "conf" / "acl" / "more.yml"
    write(more, "# told\naccounts:\n" + account("accountOne"))
    files = load_account_files(tmp_path, None)
    for name in ("accountOne", "accountTwo"):
        change = files.with_account({"accessKey": name, "secretKey": "87654321", "admin": True}, 7)
        change.write()
        files.apply(change)
    fresh = load_account_files(tmp_path, None)
    for each in (files, fresh):
        assert each.current.by_key["accountOne"].is_admin and each.current.by_key["accountTwo"].is_admin
        assert each.current.file_of["accountOne"] == more and each.current.file_of["accountTwo"] == main
    assert files.current.versions[str(more)].counter == files.current.versions[str(main)].counter == 1
    files.poll()
    removed = files.without_account("accountOne", 8)
    assert removed is not None
    removed.write()
    files.apply(removed)
    assert "accountOne" not in files.current.by_key and files.without_account("accountOne", 9) is None


LEAVER = "leaver-1"


def standing_in_three_files(tmp_path, main) -> AccountFiles:
    """The account counts as conf/acl/a.yml has it; in the others it may more, and in one it stands twice."""
    write(tmp_path / "conf" / "acl" / "a.yml", "accounts:\n" + account(LEAVER) + account("accountOne"))
    write(tmp_path / "conf" / "acl" / "b.yml", "accounts:\n" + account(LEAVER, defaultTopicPerm="PUB"))
    write(main, "accounts:\n" + account("accountTwo") + 2 * account(f"' {LEAVER}'", admin="true"))
    return load_account_files(tmp_path, None)


def test_an_account_is_removed_from_all_files(tmp_path, main):
    files = standing_in_three_files(tmp_path, main)
    change = files.without_account(LEAVER, 7)
    assert change is not None
    change.write()
    files.apply(change)
    for each in (files, load_account_files(tmp_path, None)):
        assert set(each.current.by_key) == {"accountOne", "accountTwo"}
        assert [version.counter for version in each.current.versions.values()] == [1, 1, 1]
    assert files.without_account(LEAVER, 8) is None


@pytest.mark.parametrize("survived", range(3))
def test_an_account_that_is_removed_by_half_may_no_more_than_before(tmp_path, main, monkeypatch, survived):
    change = standing_in_three_files(tmp_path, main).without_account(LEAVER, 7)
    assert change is not None
    real, steps = account_files.replace_secret_file, 0

    def fail_after(path, content):
        nonlocal steps
        steps += 1
        if steps > survived:
            raise OSError(28, "No space left on device", str(path))
        real(path, content)

    monkeypatch.setattr(account_files, "replace_secret_file", fail_after)
    with pytest.raises(OSError, match=r"No space .*\.yml"):
        change.write()
    left = load_account_files(tmp_path, None).current.by_key[LEAVER]
    assert not left.is_admin and not left.may("orders", PUB), "as a.yml has it"


def test_a_change_that_would_break_the_file_is_refused_and_nothing_is_written(main):
    files = AccountFiles(main)
    for fields in ({"secretKey": "short"}, {"topicPerms": ["x"]}, {"whiteRemoteAddress": "10.*"}):
        with pytest.raises(ConfigError):
            files.with_account({"accessKey": "RocketMQ"} | fields, 7)
    with pytest.raises(ConfigError, match="its secretKey has 0 characters"):
        files.with_account({"accessKey": "accountOne"}, 7)
    with pytest.raises(ConfigError, match="is no address"):
        files.with_addresses(["10.*"], "", 7)
    assert main.read_text() == SAMPLE


def test_addresses_go_to_files_that_are_known_and_to_no_others(tmp_path, main):
    files = load_account_files(tmp_path, None)
    write(tmp_path / "conf" / "other.yml", "")
    for path in (
        tmp_path / "conf" / "other.yml",
        main.parent / ".." / "conf" / "plain_acl.yml",
        "plain_acl.yml",
    ):
        with pytest.raises(ConfigError, match="is not one of the account files"):
            files.with_addresses(["10.0.0.1"], str(path), 7)
    for path in ("", str(main)):
        change = files.with_addresses(["10.0.0.1"], path, 7)
        change.write()
        files.apply(change)
        assert files.current.addresses.has(bytes([10, 0, 0, 1]))


def test_a_written_file_keeps_its_mode_and_a_link_to_it(tmp_path, main):
    main.chmod(0o640)
    link = tmp_path / "link.yml"
    link.symlink_to(main)
    files = AccountFiles(link)
    files.with_account({"accessKey": "accountOne", "secretKey": "12345678"}, 7).write()
    assert link.is_symlink() and main.stat().st_mode & 0o777 == 0o640
    assert "accountOne" in AccountFiles(main).current.by_key


def test_what_is_written_has_nothing_besides(main):
    main.write_text("{accounts: [{accessKey: accountOne, secretKey: 12345678}]}")
    change = AccountFiles(main).with_addresses(["10.0.0.1"], "", 7)
    change.write()
    assert main.read_text() == change.texts[main] and "checksum" not in change.texts[main]


def test_a_certificate_is_for_one_account(tmp_path):
    path = tmp_path / "plain_acl.yml"
    line = "  - {accessKey: %s, secretKey: 12345678, certificate: %s}\n"
    path.write_text("accounts:\n" + line % ("shop-one", "shop") + line % ("shop-two", "other"))
    found = AccountFiles(path).current.by_certificate
    assert {name: account.access_key for name, account in found.items()} == {
        "shop": "shop-one",
        "other": "shop-two",
    }
    path.write_text("accounts:\n" + line % ("shop-one", "shop") + line % ("shop-two", "shop"))
    with pytest.raises(ConfigError, match="'shop' belongs to the accounts 'shop-one' and 'shop-two'"):
        AccountFiles(path)
