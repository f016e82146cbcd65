"""Checks of others."""

import sys
from importlib.metadata import distributions

import pytest

from sparrowmq.auth.plugin_check import AccessRequest, PluggedCheck, plugged_check
from sparrowmq.errors import AccessDenied, ConfigError
from sparrowmq.protocol.requests import admin_headers
from tests.auth.asked import USER, pull, received, send

MINE = """
from sparrowmq.errors import AccessDenied

class OneTopic:
    def __init__(self, settings):
        self.allowed = settings["brokerName"]

    def check(self, request):
        if set(request.topics) - {self.allowed}:
            raise AccessDenied(f"only {self.allowed}")

class Nothing:
    def __init__(self, settings):
        pass
"""


class Notes:
    def __init__(self):
        self.seen: list[AccessRequest] = []

    def check(self, request):
        self.seen.append(request)


def seen(*call) -> AccessRequest:
    notes = Notes()
    PluggedCheck(notes, lambda offset: None)(*received(*call))
    return notes.seen[0]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module, and a distribution with an entry point to it, installed where Python looks."""
    (tmp_path / "mine_for_access.py").write_text(MINE)
    folder = tmp_path / "mine-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[sparrowmq.access]\none-topic = mine_for_access:OneTopic\ngone = mine_for_access:Gone\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("mine_for_access", None)


@pytest.mark.covers("S-ACL-09")
@pytest.mark.parametrize("name", ["one-topic", "mine_for_access:OneTopic"])
def test_a_check_is_found_by_its_entry_point_or_its_class(mine, name):
    assert any(each.name == "mine" for each in distributions())
    check = PluggedCheck(plugged_check(name, {"brokerName": "topicB"}), lambda offset: None)
    check(*received(send("topicB")))
    with pytest.raises(AccessDenied, match="only topicB"):
        check(*received(send("topicA")))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "is none of plain, gone, one-topic"),
        ("gone", "cannot be loaded"),
        ("nowhere:Check", "cannot be loaded"),
        ("mine_for_access:Gone", "cannot be loaded"),
        (":Check", "cannot be loaded"),
        ("mine_for_access:Nothing", "has no method check"),
    ],
)
def test_what_is_no_check_ends_the_start(mine, name, words):
    with pytest.raises(ConfigError) as caught:
        plugged_check(name, {})
    assert words in str(caught.value)


def test_a_check_sees_what_a_request_is_about():
    request = seen(pull("topicB", "groupB"), b"", USER)
    assert (request.code, request.name, request.access) == (11, "PULL_MESSAGE", "read")
    assert (request.topics, request.groups) == ({"topicB": "SUB"}, {"groupB": "SUB"})
    assert request.address == "127.0.0.1:5000" and request.access_key == USER[0]
    assert request.fields["topic"] == "topicB"
    assert seen(send("topicB")).topics == {"topicB": "PUB"} and seen(send("topicB")).access_key is None
    assert seen(admin_headers.DeleteTopic("topicB")).access == "admin"


def test_a_check_can_tell_who_signed():
    request = seen(send("topicB"), b"body", USER)
    assert request.is_signed_with(USER[1]) and not request.is_signed_with("87654321")
    assert not seen(send("topicB"), b"body").is_signed_with("")
    assert "body" not in repr(request)


def test_a_check_sees_the_name_in_the_certificate():
    notes = Notes()
    call = received(send("topicB"))
    call[0].certificate = "orders-service"
    PluggedCheck(notes, lambda offset: None)(*call)
    assert notes.seen[0].certificate == "orders-service" and seen(send("topicB")).certificate is None
