"""sparrowmq.schemas.registry: what a registry answers, refuses, or cannot answer now."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from sparrowmq.errors import ConfigError, InvalidSchema, NetworkError
from sparrowmq.schemas.registry import AVRO, PROTOBUF, Access, Reference, RegistryClient, Schema
from tests import certificates
from tests.schemas.fake_registry import FakeRegistry

TEXT = '{"type": "record", "name": "R", "fields": []}'


@pytest.fixture
def registry():
    with FakeRegistry() as registry:
        yield registry


@pytest.fixture
def client(registry):
    return RegistryClient(registry.url, Access())


def test_a_schema_is_asked_for_once(registry, client):
    schema_id = registry.add("orders-value", TEXT)
    assert client.schema(schema_id) == client.schema(schema_id) == Schema(AVRO, TEXT)
    assert registry.asked == ["GET /schemas/ids/1"]


def test_a_registered_schema_has_its_id(registry, client):
    schema_id = client.register("a b/c", Schema(AVRO, TEXT))
    assert client.register("a b/c", Schema(AVRO, TEXT), looks_only=True) == schema_id
    assert client.version("a b/c") == (schema_id, Schema(AVRO, TEXT))
    assert registry.asked[0] == "POST /subjects/a%20b%2Fc/versions"
    with pytest.raises(InvalidSchema):
        client.register("other", Schema(AVRO, TEXT), looks_only=True)
    with pytest.raises(InvalidSchema, match="refuses the schema"):
        client.register("other", Schema(AVRO, "not a schema"))


def test_references_come_before_those_that_need_them(registry, client):
    registry.add("c", "C", PROTOBUF)
    registry.add("b", "B", PROTOBUF, [{"name": "c.proto", "subject": "c", "version": 1}])
    both = [Reference("b.proto", "b", 1), Reference("c.proto", "c", 1)]
    schema_id = client.register("a", Schema(PROTOBUF, "A"), both)
    assert client.schema(schema_id) == Schema(PROTOBUF, "A", (("c.proto", "C"), ("b.proto", "B")))


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ({"name": "b", "subject": "gone", "version": 1}, r"its reference b \(version 1 of gone\) is missing"),
        ({"name": "a", "subject": "a", "version": 1}, "the reference a needs itself"),
        ({"name": "b"}, "a reference of the schema is not as it should be"),
        ("b", "a reference of the schema is not as it should be"),
    ],
)
def test_references_that_cannot_be_followed_say_why(registry, client, reference, why):
    schema_id = registry.add("a", TEXT, references=[reference])
    with pytest.raises(InvalidSchema, match=why):
        client.schema(schema_id)


def test_a_schema_with_too_many_references_is_refused(registry, client):
    for number in range(300):
        registry.add(
            f"s{number}",
            f'"{number}"',
            references=[{"name": f"{number + 1}", "subject": f"s{number + 1}", "version": 1}],
        )
    with pytest.raises(InvalidSchema, match="more than 200 references"):
        client.schema(1)


@pytest.mark.parametrize("timeout_s", [-1, 0, "x", None, True, float("nan"), float("inf")])
def test_a_timeout_that_is_no_time_is_refused(registry, timeout_s):
    with pytest.raises(ConfigError, match=r"timeout_s=.* give seconds above 0"):
        RegistryClient(registry.url, Access(), timeout_s=timeout_s)
    schema_id = registry.add("orders-value", TEXT)
    assert RegistryClient(registry.url, Access(), timeout_s=1e30).schema(schema_id).text == TEXT


@pytest.mark.parametrize("schema_id", [None, "1", 1.5])
def test_what_is_no_number_is_no_id_of_a_schema(client, schema_id):
    with pytest.raises(ConfigError, match=r"schema_id=.*: give a number"):
        client.schema(schema_id)


def test_an_id_that_does_not_exist_is_no_schema(registry, client):
    with pytest.raises(InvalidSchema, match="the registry has no schemas/ids/99"):
        client.schema(99)
    with pytest.raises(InvalidSchema, match="4294967295 is no id"):
        client.schema(2**32 - 1)


@pytest.mark.parametrize("failure", [500, 503, 429, "hang up", "cut off"])
def test_a_registry_in_trouble_is_away(registry, client, failure):
    schema_id = registry.add("a", TEXT)
    registry.failures.append(failure)
    with pytest.raises(NetworkError, match=registry.url):
        client.schema(schema_id)
    assert client.schema(schema_id).text == TEXT


def test_a_registry_without_a_server_is_away(registry, client):
    registry.stop()
    with pytest.raises(NetworkError, match="does not answer"):
        client.schema(1)


def test_a_registry_that_is_silent_is_away():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = RegistryClient(f"http://127.0.0.1:{silent.getsockname()[1]}", Access(), timeout_s=0.2)
        with pytest.raises(NetworkError, match="timed out"):
            client.schema(1)


@pytest.mark.timeout(60)
def test_a_registry_whose_answer_does_not_end_is_away(registry):
    registry.failures.append("drip")
    with pytest.raises(NetworkError, match=r"is not there after 0\.2 s"):
        RegistryClient(registry.url, Access(), timeout_s=0.2).schema(1)


@pytest.mark.parametrize("answer", ["<html>", "[]", "{}", '{"schema": 5}', "\xff", "[" * 100_000])
def test_another_server_is_no_registry(registry, client, answer):
    registry.failures.append(answer)
    with pytest.raises(ConfigError, match="write the address below which a registry answers"):
        client.schema(1)


def test_a_404_without_a_code_does_not_mean_that_a_schema_is_missing(registry):
    client = RegistryClient(f"{registry.url}/no/such/path", Access())
    with pytest.raises(ConfigError, match="answers /schemas/ids/1 with the status 404"):
        client.schema(1)


def test_an_account_is_checked(registry):
    registry.account = "me:secret"
    schema_id = registry.add("a", TEXT)
    assert RegistryClient(registry.url, Access("me:secret")).schema(schema_id).text == TEXT
    with pytest.raises(ConfigError, match="SCHEMA_REGISTRY_USER_INFO") as caught:
        RegistryClient(registry.url, Access("me:wrong")).schema(schema_id)
    assert "wrong" not in str(caught.value)


def test_the_environment_gives_the_account(registry, monkeypatch):
    registry.account = "me:secret"
    monkeypatch.setenv("SCHEMA_REGISTRY_USER_INFO", "me:secret")
    assert RegistryClient(registry.url).schema(registry.add("a", TEXT)).text == TEXT


def test_another_host_does_not_get_the_account(registry):
    class Redirect(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", registry.url + self.path)
            self.end_headers()

        def log_message(self, *args):
            pass

    schema_id = registry.add("a", TEXT)
    with HTTPServer(("127.0.0.1", 0), Redirect) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        client = RegistryClient(f"http://127.0.0.1:{server.server_address[1]}", Access("me:secret"))
        assert client.schema(schema_id).text == TEXT
    assert "Authorization" not in registry.headers[0]


def test_tls_needs_an_authority_that_is_named(tmp_path):
    authority = certificates.authority(tmp_path)
    own = certificates.signed(tmp_path, "registry", authority, host="DNS:localhost")
    with FakeRegistry(tls=(own.certificate, own.key)) as registry:
        schema_id = registry.add("a", TEXT)
        trusted = Access(ca=str(authority.certificate))
        assert RegistryClient(registry.url, trusted).schema(schema_id).text == TEXT
        with pytest.raises(ConfigError, match=r"is not trusted .* SCHEMA_REGISTRY_CA"):
            RegistryClient(registry.url, Access()).schema(schema_id)


def test_a_huge_answer_is_refused(registry, client, monkeypatch):
    monkeypatch.setattr("sparrowmq.schemas.registry._MAX_ANSWER_BYTES", 1 << 20)
    schema_id = registry.add("a", " " * (1 << 20))
    with pytest.raises(InvalidSchema, match="more than 1 MiB"):
        client.schema(schema_id)
