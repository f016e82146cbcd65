"""One account file, plain_acl.yml: its values, and changes that leave all others as they are.

Scalars are the text of the file. Unlike Java: a secret of digits keeps its leading zeros, and 1e7 or 0x1F keep their
form. A written file has the scalars as they were, in block style; comments are lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from sparrowmq.auth.accounts import ACCESS_KEY, list_of, parse_account, text_of
from sparrowmq.auth.addresses import Addresses
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.requests.bodies import DataVersion
from sparrowmq.settings.settings_files import value_of

_Node = Any  # yaml.Node, whose kinds PyYAML's types do not tell apart
ADDRESSES_KEY: Final = "globalWhiteRemoteAddresses"
ACCOUNTS_KEY: Final = "accounts"
VERSION_KEY: Final = "dataVersion"


class Document:
    """The content of a file: the fields of each account, the account as a user, and the patterns of addresses that need
    no signature. Raises: ConfigError, it is not YAML, or not a table of valid accounts and addresses. The error names
    the file.
    """

    def __init__(self, text: str, name: object) -> None:
        self.source = text
        try:
            root = yaml.compose(text)
            self._values = {} if root is None else _plain_values(root, name)
            if not isinstance(self._values, dict):
                raise ConfigError(f"it must be a table with {ACCOUNTS_KEY} and {ADDRESSES_KEY}")
            self.addresses = list_of(self._values, ADDRESSES_KEY)
            Addresses(self.addresses)
            self.accounts: list[dict[str, Any]] = self._values.get(ACCOUNTS_KEY) or []
            if not isinstance(self.accounts, list) or not all(isinstance(each, dict) for each in self.accounts):
                raise ConfigError(f"{ACCOUNTS_KEY} must be a list of tables, each beginning '- accessKey: '")
            self.users = [parse_account(fields) for fields in self.accounts]
        except (yaml.YAMLError, RecursionError) as error:
            raise ConfigError(f"{name} is not YAML: {_yaml_error_reason(error)}") from None
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"{name}: {error}") from None

    def account(self, access_key: str) -> dict[str, Any] | None:
        return next((fields for fields in self.accounts if text_of(fields, ACCESS_KEY) == access_key), None)

    @property
    def version(self) -> DataVersion:
        """The number and the time of changes over the wire."""
        try:
            first = self._values[VERSION_KEY][0]
            return DataVersion(int(first.get("counter") or 0), int(first.get("timestamp") or 0))
        except (AttributeError, LookupError, TypeError, ValueError):
            return DataVersion()

    # Changes. `text` is the file to write; a new Document checks its values.

    def set_account(self, fields: Mapping[str, Any]) -> None:
        """Create an account, or change the given fields of an existing one."""
        account = self.account(fields[ACCESS_KEY])
        if account is None:
            account = {}
            self._values[ACCOUNTS_KEY] = self.accounts = [*self.accounts, account]
        account.update(fields)

    def remove_account(self, access_key: str) -> None:
        remaining = [each for each in self.accounts if text_of(each, ACCESS_KEY) != access_key]
        self._values[ACCOUNTS_KEY] = self.accounts = remaining

    def set_addresses(self, patterns: Sequence[str]) -> None:
        self._values[ADDRESSES_KEY] = list(patterns)

    def count_change(self, now_ms: int) -> None:
        self._values[VERSION_KEY] = [{"counter": self.version.counter + 1, "timestamp": now_ms}]

    def text(self) -> str:
        return yaml.dump(self._values, Dumper=_Dumper, allow_unicode=True, sort_keys=False)


class _Scalar(str):
    """The text of a scalar, "" for null, with its node, which is written again as it was."""

    node: _Node


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(_Scalar, lambda _, scalar: scalar.node)


def _yaml_error_reason(error: Exception) -> str:
    """The reason for a YAML error, without quoting the text: it may be a secret key."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    return f"{', '.join(filter(None, parts))} {_position(mark)}"


def _position(mark: Any) -> str:
    return f"in line {mark.line + 1}, column {mark.column + 1}"


def _plain_values(node: _Node, name: object, parent_ids: tuple[int, ...] = ()) -> Any:
    """Convert to texts, lists and dicts. Raises: ConfigError, a key is double or no text, or an alias is recursive."""
    if id(node) in parent_ids:
        raise ConfigError("an alias refers to a value that contains it")
    ids = (*parent_ids, id(node))
    if node.id == "scalar":
        node.value = value_of(node.value, f"{name}: the value {_position(node.start_mark)}")
        scalar = _Scalar("" if node.value in ("~", "null") and node.style is None else node.value)
        scalar.node = node
        return scalar
    if node.id == "sequence":
        return [_plain_values(item, name, ids) for item in node.value]
    values: dict[str, Any] = {}
    for key, value in node.value:
        if key.id != "scalar":
            raise ConfigError(
                f"a key is a list or a table; write one text before the colon {_position(key.start_mark)}"
            )
        if key.value in values:
            raise ConfigError(f"{key.value!r} is a duplicate key, the second time {_position(key.start_mark)}")
        values[_plain_values(key, name)] = _plain_values(value, name, ids)
    return values
