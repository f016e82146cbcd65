"""A client of a schema registry, by Confluent's REST API. Schemas are cached by id: an id never changes its schema.

    GET  /schemas/ids/7                          the schema, its type, its references
    GET  /subjects/orders-value/versions/3       a reference of it
    POST /subjects/orders-value/versions         register a schema, unless the subject has it
    POST /subjects/orders-value                  look up a schema, and register nothing

There are three kinds of failure. NetworkError: the registry is away (no connection, no answer, 429, 5xx); a retry may
help. InvalidSchema: the registry answers with its own error code that it has no such schema. ConfigError: something
must be corrected, such as the account. A 404 without that code is a ConfigError: the server is not a registry.

Credentials come from the environment, or from a file with the names of Confluent's clients. Command lines have no
option for them, because other users of the machine can read command lines.

    variable                        in a file (SCHEMA_REGISTRY_FILE)
    SCHEMA_REGISTRY_USER_INFO       basic.auth.user.info             user:password
    SCHEMA_REGISTRY_CA              ssl.ca.location                  a file of certificates to trust
    SCHEMA_REGISTRY_CERTIFICATE     ssl.certificate.location         the client's own certificate
    SCHEMA_REGISTRY_KEY             ssl.key.location                 its key
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPSHandler, Request, build_opener

from sparrowmq.client.arguments import check_kind, check_seconds, check_text
from sparrowmq.errors import ConfigError, InvalidSchema, NetworkError

FILE: Final = "SCHEMA_REGISTRY_FILE"
_VARIABLES: Final = {
    "basic.auth.user.info": "SCHEMA_REGISTRY_USER_INFO",
    "ssl.ca.location": "SCHEMA_REGISTRY_CA",
    "ssl.certificate.location": "SCHEMA_REGISTRY_CERTIFICATE",
    "ssl.key.location": "SCHEMA_REGISTRY_KEY",
}
AVRO: Final = "AVRO"
PROTOBUF: Final = "PROTOBUF"
_TIMEOUT_S: Final = 10.0
_MAX_TIMEOUT_S: Final = 86_400.0  # sockets refuse numbers that are much larger
_MAX_ANSWER_BYTES: Final = 16 << 20
_READ_BYTES: Final = 1 << 16
_MAX_REFERENCES: Final = 200
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
# Confluent's codes for a subject, a version and a schema that do not exist.
_ABSENT_CODES: Final = range(40401, 40500)
_SCHEMA_IDS: Final = range(1 << 31)  # Java's int, as registries count


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials for a registry; `repr` shows none."""

    user_info: str = field(default="", repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def headers(self) -> dict[str, str]:
        if not self.user_info:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(self.user_info.encode()).decode()}

    def tls(self) -> ssl.SSLContext:
        """Return how connections are encrypted. Raises: ConfigError, a file cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None)
        except (OSError, ssl.SSLError) as error:
            names = ", ".join(name for name in (self.ca, self.certificate, self.key) if name)
            raise ConfigError(
                f"the certificates for the schema registry cannot be used ({error}); the files are {names}"
            ) from None
        return context


def load_access(environment: Mapping[str, str] | None = None) -> Access:
    """Return the access that the environment names; a variable has priority over the file. Raises: ConfigError."""
    variables = os.environ if environment is None else environment
    values = _read_file(Path(variables[FILE])) if variables.get(FILE) else {}
    values |= {name: variables[variable] for name, variable in _VARIABLES.items() if variables.get(variable)}
    user_info, *files = (values.get(name, "") for name in _VARIABLES)
    if user_info and ":" not in user_info:
        raise ConfigError("the schema registry's account has no password; write user:password")
    return Access(user_info, *files)


def check_address(address: str) -> str:
    """Return the address of a registry, without a slash at its end. Raises: ConfigError."""
    check_text("the address of a registry", address)
    if not _is_address(address):
        raise ConfigError(f"{_without_account(address)!r} is no address of a registry; write http://host:8081")
    if "@" in urlsplit(address).netloc:
        raise ConfigError(
            f"the address {_without_account(address)} contains an account; "
            "put it into SCHEMA_REGISTRY_USER_INFO, or into the file that SCHEMA_REGISTRY_FILE names"
        )
    return address.rstrip("/")


def _is_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        is_http_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an end, or a port that is none
        return False
    return is_http_url and address.isprintable() and " " not in address


def _without_account(address: str) -> str:
    return address.rpartition("@")[2]


def _read_file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}, which {FILE} names, cannot be read ({error})") from None
    values = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if not equals or name not in _VARIABLES:
            raise ConfigError(f"{path}, line {number}: write NAME=VALUE; the names are {', '.join(_VARIABLES)}")
        values[name] = value
    return values


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a registry has it.

    `text` is JSON for Avro; for Protobuf a .proto file, or the base64 of its FileDescriptorProto. `references` are
    (name, text) of the schemas that it needs, behind those that these need themselves.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A version of a subject that a schema needs, by the name under which it does."""

    name: str
    subject: str
    version: int


class RegistryClient:
    """A connection to a registry, for any thread. Raises: NetworkError, InvalidSchema, ConfigError: see the module."""

    def __init__(self, address: str, credentials: Access | None = None, *, timeout_s: float = _TIMEOUT_S) -> None:
        self.address = check_address(address)
        check_seconds("timeout_s", timeout_s)
        access = load_access() if credentials is None else credentials
        self._timeout_s = min(timeout_s, _MAX_TIMEOUT_S)
        self._credentials = access.headers()
        handlers = [HTTPSHandler(context=access.tls())] if self.address.startswith("https:") else []
        self._opener = build_opener(*handlers)
        self._schemas: dict[int, Schema] = {}

    def schema(self, schema_id: int) -> Schema:
        """Return a schema with all that it needs. Raises: InvalidSchema, also if its references cannot be followed."""
        check_kind("schema_id", schema_id, int, "a number")  # the search for a text among all ids takes minutes
        if (cached := self._schemas.get(schema_id)) is not None:
            return cached
        if schema_id not in _SCHEMA_IDS:
            raise InvalidSchema(f"{schema_id} is no id of a schema")
        schema = self._schema_of(self._request("GET", f"/schemas/ids/{schema_id}"))
        self._schemas[schema_id] = schema
        return schema

    def register(
        self, subject: str, schema: Schema, references: Sequence[Reference] = (), *, looks_only: bool = False
    ) -> int:
        """Return the id of a schema, which becomes a version of the subject unless it is one, or `looks_only`."""
        schema_id = self._post(subject, schema, references, "" if looks_only else "/versions").get("id")
        if not isinstance(schema_id, int):
            raise self._not_a_registry("answers without the id of a schema")
        return schema_id

    def version_of(self, subject: str, schema: Schema, references: Sequence[Reference] = ()) -> int:
        """Return which version of a subject a schema is. Raises: InvalidSchema, none."""
        version = self._post(subject, schema, references, "").get("version")
        if not isinstance(version, int):
            raise self._not_a_registry("answers without a version")
        return version

    def _post(self, subject: str, schema: Schema, references: Sequence[Reference], action: str) -> Mapping[str, Any]:
        body: dict[str, Any] = {"schema": schema.text}
        if schema.kind != AVRO:
            body["schemaType"] = schema.kind
        if references:
            body["references"] = [
                {"name": reference.name, "subject": reference.subject, "version": reference.version}
                for reference in references
            ]
        return self._request("POST", f"/subjects/{quote(subject, safe='')}{action}", body)

    def version(self, subject: str, version: int | str = "latest") -> tuple[int, Schema]:
        """Return a version of a subject: its id, and the schema with all that it needs."""
        answer = self._version(subject, version)
        schema_id = answer.get("id")
        if not isinstance(schema_id, int):
            raise self._not_a_registry("answers without the id of a schema")
        return schema_id, self._schema_of(answer)

    def _version(self, subject: str, version: int | str) -> Mapping[str, Any]:
        return self._request("GET", f"/subjects/{quote(subject, safe='')}/versions/{quote(str(version), safe='')}")

    def _schema_of(self, answer: Mapping[str, Any]) -> Schema:
        references: dict[str, str] = {}
        own = self._text_of(answer)
        self._resolve_references(answer, references, ())
        return replace(own, references=tuple(references.items()))

    def _resolve_references(
        self, answer: Mapping[str, Any], references: dict[str, str], above: tuple[str, ...]
    ) -> None:
        """Add the references of an answer to `references`, each behind those that it needs itself."""
        for reference in answer.get("references") or ():
            try:
                name, subject, version = (reference[key] for key in ("name", "subject", "version"))
            except (KeyError, TypeError):
                raise InvalidSchema(f"a reference of the schema is not as it should be: {reference!r}") from None
            if name in above:
                raise InvalidSchema(f"the reference {name} needs itself")
            if name in references:
                continue
            if len(references) + len(above) >= _MAX_REFERENCES:
                raise InvalidSchema(f"the schema has more than {_MAX_REFERENCES} references")
            try:
                referenced = self._version(str(subject), version)
            except InvalidSchema:
                raise InvalidSchema(f"its reference {name} (version {version} of {subject}) is missing") from None
            self._resolve_references(referenced, references, (*above, name))
            references[str(name)] = self._text_of(referenced).text

    def _text_of(self, answer: Mapping[str, Any]) -> Schema:
        text, kind = answer.get("schema"), answer.get("schemaType", AVRO)
        if not isinstance(text, str) or not isinstance(kind, str):
            raise self._not_a_registry("answers without a schema")
        return Schema(kind, text)

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        content = None if body is None else json.dumps(body).encode()
        request = Request(
            self.address + path, content, {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}, method=method
        )
        for name, value in self._credentials.items():
            request.add_unredirected_header(name, value)  # another host must not get them
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return self._parse_answer(self._read(answer))
        except HTTPError as error:
            with error:
                raise self._refusal(error, path) from None
        except URLError as error:
            raise self._unreachable(error.reason) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None

    def _read(self, answer: http.client.HTTPResponse | HTTPError) -> bytes:
        """Read a body. Raises: OSError, also if it comes so slowly that it takes longer than the limit of an answer."""
        received, end_s = bytearray(), time.monotonic() + self._timeout_s
        while len(received) <= _MAX_ANSWER_BYTES and (piece := answer.read1(_READ_BYTES)):
            received += piece
            if time.monotonic() > end_s:
                raise TimeoutError(f"its answer is not there after {self._timeout_s:g} s")
        if answer.length and len(received) <= _MAX_ANSWER_BYTES:
            raise ConnectionError("its answer was cut off")
        return bytes(received)

    def _parse_answer(self, answer: bytes) -> Mapping[str, Any]:
        if len(answer) > _MAX_ANSWER_BYTES:
            raise InvalidSchema(f"the registry's answer has more than {_MAX_ANSWER_BYTES >> 20} MiB")
        try:
            parsed = json.loads(answer)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise self._not_a_registry("does not answer with a JSON object")
        return parsed

    def _refusal(self, error: HTTPError, path: str) -> Exception:
        """Return the error for an answer that is none of success."""
        try:
            details = json.loads(self._read(error))
            code, message = int(details["error_code"]), str(details.get("message", ""))
        except (ValueError, TypeError, KeyError, RecursionError, OSError, http.client.HTTPException):
            code, message = 0, ""
        status = error.code
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
            return self._unreachable(f"status {status} {message}".strip())
        if code in _ABSENT_CODES:
            return InvalidSchema(f"the registry has no {path.removeprefix('/')} ({message})")
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return ConfigError(
                f"the schema registry at {self.address} refuses the account (status {status}); "
                "put user:password into SCHEMA_REGISTRY_USER_INFO, or into the file that SCHEMA_REGISTRY_FILE names"
            )
        if code:
            return InvalidSchema(f"the registry refuses the schema ({message or code})")
        return self._not_a_registry(f"answers {path} with the status {status}")

    def _unreachable(self, reason: object) -> Exception:
        if isinstance(reason, ssl.SSLCertVerificationError):
            return ConfigError(
                f"the certificate of the schema registry at {self.address} is not trusted "
                f"({reason.verify_message}); name the file of its authority in SCHEMA_REGISTRY_CA"
            )
        return NetworkError(
            f"the schema registry at {self.address} does not answer ({reason}); "
            "check that it runs, and that it can be reached from here"
        )

    def _not_a_registry(self, problem: str) -> ConfigError:
        return ConfigError(
            f"{self.address} {problem}; write the address below which a registry answers to Confluent's API, "
            "such as http://host:8081, or http://host:8080/apis/ccompat/v7 for Apicurio"
        )
