"""sparrowmq.schemas.registry: credentials come from the environment or a file."""

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.schemas.registry import Access, check_address, load_access
from tests import certificates


def test_nothing_is_needed():
    assert load_access({}) == Access()
    assert load_access({}).headers() == {}


def test_a_variable_has_priority_over_the_file(tmp_path):
    file = tmp_path / "registry.properties"
    file.write_text("# ours\nbasic.auth.user.info = a:from=file\n\nssl.ca.location=/ca.pem\n")
    assert load_access({"SCHEMA_REGISTRY_FILE": str(file)}) == Access("a:from=file", "/ca.pem")
    both = {"SCHEMA_REGISTRY_FILE": str(file), "SCHEMA_REGISTRY_USER_INFO": "b:c"}
    assert load_access(both) == Access("b:c", "/ca.pem")
    assert load_access(both).headers() == {"Authorization": "Basic Yjpj"}


def test_what_is_shown_of_an_access_has_no_password():
    assert "secret" not in repr(Access("me:secret"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nonsense", "line 1: write NAME=VALUE"),
        ("password=x", "line 1: write NAME=VALUE; the names are basic.auth.user.info"),
        ("basic.auth.user.info=me", "write user:password"),
    ],
)
def test_a_file_with_other_lines_is_refused(tmp_path, text, complaint):
    file = tmp_path / "registry.properties"
    file.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_access({"SCHEMA_REGISTRY_FILE": str(file)})


def test_a_file_that_is_missing_is_named():
    with pytest.raises(ConfigError, match="/nowhere, which SCHEMA_REGISTRY_FILE names, cannot be read"):
        load_access({"SCHEMA_REGISTRY_FILE": "/nowhere"})


def test_certificates_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"the files are /nowhere\.pem"):
        Access(ca="/nowhere.pem").tls()
    pair = certificates.authority(tmp_path)
    Access(ca=str(pair.certificate), certificate=str(pair.certificate), key=str(pair.key)).tls()


@pytest.mark.parametrize(
    "address",
    [
        "registry:8081",
        "ftp://registry",
        "http://",
        "",
        "http://[",
        "http://x:99999",
        "http://x:abc",
        "http://x y",
    ],
)
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ConfigError, match="is no address of a registry"):
        check_address(address)


@pytest.mark.parametrize("address", [None, 5, b"http://registry:8081", ["http://registry:8081"], "http://\ud800"])
def test_an_address_that_is_no_text_is_refused(address):
    with pytest.raises(ConfigError, match="the address of a registry="):
        check_address(address)


def test_an_address_with_a_password_is_refused_without_showing_it():
    with pytest.raises(ConfigError, match="SCHEMA_REGISTRY_USER_INFO") as caught:
        check_address("http://me:secret@registry:8081")
    assert "secret" not in str(caught.value)
    assert check_address("http://registry:8081/") == "http://registry:8081"
