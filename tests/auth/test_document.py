"""plain_acl.yml: read as it is written, changed without touching the rest."""

import pytest

from sparrowmq.auth.document import Document
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.requests.bodies import DataVersion
from tests.auth.asked import SAMPLE


def test_the_sample_is_read():
    document = Document(SAMPLE, "plain_acl.yml")
    assert document.addresses == ["10.10.103.*", "192.168.0.*"]
    first, second = document.accounts
    assert first["accessKey"] == "RocketMQ" and first["whiteRemoteAddress"] == ""
    assert first["topicPerms"] == ["topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"]
    assert second["admin"] == "true"
    assert document.version == DataVersion(0, 0)


@pytest.mark.parametrize(
    "secret", ["12345678", "01234567", "1e100000", "0x1F1F1F", "2024-01-01", "1_000_000", "yes-yes-yes"]
)
def test_a_secret_is_the_text_that_stands_there_before_and_after_a_change(secret):
    document = Document(f"accounts:\n- accessKey: RocketMQ\n  secretKey: {secret}\n", "f")
    assert document.accounts[0]["secretKey"] == secret
    document.count_change(1)
    assert Document(document.text(), "f").accounts[0]["secretKey"] == secret


@pytest.mark.parametrize("text", ["", "# nothing\n", "accounts:\n", "accounts: ~\nglobalWhiteRemoteAddresses: null\n"])
def test_a_file_may_be_empty(text):
    document = Document(text, "f")
    assert not document.accounts and not document.addresses
    document.set_account({"accessKey": "RocketMQ", "secretKey": "12345678"})
    assert Document(document.text(), "f").accounts == [{"accessKey": "RocketMQ", "secretKey": "12345678"}]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("accounts:\n- secretKey: topsecret\n  secretKey: topsecret\n", "line 3, column 3"),
        ("accounts:\n- accessKey: a\n secretKey: topsecret\n", "line 3, column 2"),
        ("accounts: [\n secretKey: topsecret: x\n", "line 2, column 22"),
        ("? [topsecret]\n: 1\n", "line 1, column 3"),
    ],
)
def test_a_broken_line_is_named_and_not_quoted(text, place):
    """It may have a secret, and the error goes to the log."""
    with pytest.raises(ConfigError, match=place) as caught:
        Document(text, "f")
    assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accounts: [", "is not YAML"),
        ("- a\n- b\n", "must be a table"),
        ("just words", "must be a table"),
        ("accounts: yes\n", "accounts must be a list"),
        ("accounts: [RocketMQ]\n", "accounts must be a list"),
        ("globalWhiteRemoteAddresses: 10.0.0.1\n", "globalWhiteRemoteAddresses must be a list"),
        ("accounts: []\naccounts: []\n", "'accounts' is a duplicate key"),
        ("a: &x [*x]\n", "alias refers to"),
        ("? [a, b]\n: 1\n", "a key is a list or a table"),
        ("accounts:\n- {a: 1}: 1\n", "a key is a list or a table"),
        ("\tx: 1", "is not YAML"),
        ("a: 1\n---\nb: 2\n", "is not YAML"),
        ("[" * 5000, "is not YAML"),
    ],
)
def test_what_is_none_is_refused_with_the_files_name(text, words):
    with pytest.raises(ConfigError) as caught:
        Document(text, "conf/plain_acl.yml")
    assert words in str(caught.value) and "conf/plain_acl.yml" in str(caught.value)


def test_a_change_keeps_what_it_does_not_know():
    text = SAMPLE + "mine:\n  since: 2024-01-01\n  number: 007\n  quoted: '007'\n  none: ~\n  7: [a, {b: 1e7}]\n"
    document = Document(text, "f")
    document.set_account({"accessKey": "RocketMQ", "admin": True, "topicPerms": ["topicA=PUB"]})
    document.count_change(1_795_144_375_341)
    written = document.text()
    for line in ("since: 2024-01-01", "number: 007", "quoted: '007'", "none: ~", "7:", "- b: 1e7"):
        assert f"  {line}\n" in written, written
    again = Document(written, "f")
    first, second = again.accounts
    assert (first["admin"], first["topicPerms"], first["secretKey"]) == ("true", ["topicA=PUB"], "12345678")
    assert first["groupPerms"] == ["groupA=DENY", "groupB=PUB|SUB", "groupC=SUB"]
    assert second == Document(SAMPLE, "f").accounts[1]
    assert again.version == DataVersion(1, 1_795_144_375_341)
    again.count_change(1_795_144_375_342)
    assert Document(again.text(), "f").version == DataVersion(2, 1_795_144_375_342)


def test_an_account_is_removed_and_addresses_are_replaced():
    document = Document(SAMPLE, "f")
    document.remove_account("RocketMQ")
    document.remove_account("nobody")
    document.set_addresses(["10.0.0.1", "*"])
    again = Document(document.text(), "f")
    assert [each["accessKey"] for each in again.accounts] == ["rocketmq2"]
    assert again.addresses == ["10.0.0.1", "*"]


@pytest.mark.parametrize("value", ["true", "12345678", "a: b", "'", "", "- x", "密钥", "null"])
def test_a_text_that_is_written_is_read_as_the_same_text(value):
    document = Document("", "f")
    document.set_account({"accessKey": "RocketMQ", "secretKey": "12345678", "mine": value})
    assert Document(document.text(), "f").accounts[0]["mine"] == value


def test_a_version_that_is_none_is_the_first():
    for text in ("dataVersion: x", "dataVersion: []", "dataVersion: [x]", "dataVersion: [{counter: x}]"):
        assert Document(text, "f").version == DataVersion(0, 0)
