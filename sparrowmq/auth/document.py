"""plain_acl.yml: read it as it is written, and change it without touching unknown parts.

    globalWhiteRemoteAddresses: [10.10.103.*]
    accounts:
      - accessKey: RocketMQ
        secretKey: 12345678
        ...                             accounts.py
    dataVersion: [{counter: 3, timestamp: 1795144375341}]     sent with code 52; counts changes over the wire

Scalars are the text of the file. Unlike Java: a secret of digits keeps its leading zeros, and 1e7 or 0x1F keep their
form; Java reads numbers. A change edits the syntax tree of the file: other values stay, comments are lost.
Source: AclUtils and PlainPermissionManager, Java 4.9.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sparrowmq.auth.accounts import ACCESS_KEY, list_of, text_of
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.requests.bodies import DataVersion
from sparrowmq.settings.file_text import value_of

Node = Any  # yaml.Node, whose kinds PyYAML's types do not tell apart

ADDRESSES: Final = "globalWhiteRemoteAddresses"
ACCOUNTS: Final = "accounts"
VERSION: Final = "dataVersion"
_TEXT: Final = "tag:yaml.org,2002:str"
_MAPPING: Final = "tag:yaml.org,2002:map"
_SEQUENCE: Final = "tag:yaml.org,2002:seq"
_INTEGER: Final = "tag:yaml.org,2002:int"
_BOOLEAN: Final = "tag:yaml.org,2002:bool"


class Document:
    """One file's content.

    Args:
        name: of the file, for errors.
    Attributes:
        source: the text that was read, by `file_text.read_text`.
    Raises:
        ConfigError: it is no YAML, or no table of accounts and addresses. The error names the file.
    """

    def __init__(self, text: str, name: object) -> None:
        import yaml  # here and not above: brokers without access control do not need it

        self.name = name
        self.source = text
        try:
            self._root = yaml.compose(text) or _mapping()
            values = _plain(self._root, name)
        except (yaml.YAMLError, RecursionError) as error:
            raise ConfigError(f"{name} is not YAML: {_reason(error)}") from None
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
        if not isinstance(values, dict):
            raise ConfigError(f"{name}: it must be a table with {ACCOUNTS} and {ADDRESSES}")
        self._values: Mapping[str, Any] = values

    @property
    def addresses(self) -> Sequence[str]:
        """The patterns of addresses that need no signature. Raises: ConfigError."""
        try:
            return list_of(self._values, ADDRESSES)
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from None

    @property
    def accounts(self) -> Sequence[Mapping[str, Any]]:
        """The fields of each account. Raises: ConfigError."""
        accounts = self._values.get(ACCOUNTS) or []
        if not isinstance(accounts, list) or not all(isinstance(each, dict) for each in accounts):
            raise ConfigError(f"{self.name}: {ACCOUNTS} must be a list of tables, each beginning '- accessKey: '")
        return accounts

    def has_account(self, access_key: str) -> bool:
        """Whether the file has an account of this name. Raises: ConfigError."""
        return any(text_of(fields, ACCESS_KEY) == access_key for fields in self.accounts)

    @property
    def version(self) -> DataVersion:
        """The number and the time of changes over the wire."""
        versions = self._values.get(VERSION)
        first = versions[0] if isinstance(versions, list) and versions else {}
        numbers = [first.get(key, "") if isinstance(first, dict) else "" for key in ("counter", "timestamp")]
        counter, timestamp = [whole_number(str(text)) or 0 for text in numbers]
        return DataVersion(counter, timestamp)

    # Changes. Each edits only the tree. `text` is the file to write; a new Document has the new values.

    def set_account(self, fields: Mapping[str, Any]) -> None:
        """Create an account, or change the given fields of an existing one."""
        account = next(self._account_nodes(str(fields[ACCESS_KEY])), None)
        if account is None:
            account = _mapping()
            self._sequence(ACCOUNTS).value.append(account)
        for key, value in fields.items():
            _put(account, key, _node(value))

    def remove_account(self, access_key: str) -> bool:
        """Remove an account. Returns whether it existed."""
        gone = list(self._account_nodes(access_key))
        if gone:
            accounts = self._sequence(ACCOUNTS)
            accounts.value = [each for each in accounts.value if not any(each is node for node in gone)]
        return bool(gone)

    def set_addresses(self, patterns: Sequence[str]) -> None:
        """Replace the patterns of addresses that need no signature."""
        _put(self._root, ADDRESSES, _node(list(patterns)))

    def count_change(self, now_ms: int) -> None:
        version = {"counter": self.version.counter + 1, "timestamp": now_ms}
        _put(self._root, VERSION, _node([version]))

    def text(self) -> str:
        import yaml

        return yaml.serialize(self._root, allow_unicode=True)

    def _account_nodes(self, access_key: str) -> Iterator[Node]:
        for node in self._sequence(ACCOUNTS).value:
            if text_of(_plain(node, self.name), ACCESS_KEY) == access_key:
                yield node

    def _sequence(self, key: str) -> Node:
        for name, node in self._root.value:
            if name.value == key and node.id == "sequence":
                return node
        made = _node([])
        _put(self._root, key, made)
        return made


def _reason(error: Exception) -> str:
    """The reason for a YAML error, without quoting the text: it may be a secret key."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    said = [getattr(error, "context", None), getattr(error, "problem", None)]
    return f"{', '.join(filter(None, said))} {_place(mark)}"


def _place(mark: Any) -> str:
    return f"in line {mark.line + 1}, column {mark.column + 1}"


def _plain(node: Node, name: object, above: tuple[int, ...] = ()) -> Any:
    """Convert to texts, lists and dicts. Raises: ConfigError, a key is double or no text, or an alias is recursive."""
    if id(node) in above:
        raise ConfigError("an alias is inside the value that it names")
    inside = (*above, id(node))
    if node.id == "scalar":
        node.value = value_of(node.value, f"{name}: the value {_place(node.start_mark)}")
        return "" if node.value in ("~", "null") and node.style is None else node.value
    if node.id == "sequence":
        return [_plain(each, name, inside) for each in node.value]
    values: dict[str, Any] = {}
    for key, value in node.value:
        if key.id != "scalar":
            raise ConfigError(f"a key is a list or a table; write one text before the colon {_place(key.start_mark)}")
        if key.value in values:
            raise ConfigError(f"{key.value!r} is twice in one table, the second time {_place(key.start_mark)}")
        values[str(key.value)] = _plain(value, name, inside)
    return values


def _put(mapping: Node, key: str, node: Node) -> None:
    kept = [(name, value) for name, value in mapping.value]
    for number, (name, _) in enumerate(kept):
        if name.value == key:
            kept[number] = (name, node)
            break
    else:
        kept.append((_node(key), node))
    mapping.value = kept


def _mapping() -> Node:
    import yaml

    return yaml.MappingNode(_MAPPING, [], flow_style=False)


def _node(value: Any) -> Node:
    import yaml

    if isinstance(value, bool):
        return yaml.ScalarNode(_BOOLEAN, str(value).lower())
    if isinstance(value, int):
        return yaml.ScalarNode(_INTEGER, str(value))
    if isinstance(value, str):
        return yaml.ScalarNode(_TEXT, value)
    if isinstance(value, Mapping):
        pairs = [(_node(key), _node(each)) for key, each in value.items()]
        return yaml.MappingNode(_MAPPING, pairs, flow_style=False)
    return yaml.SequenceNode(_SEQUENCE, [_node(each) for each in value], flow_style=False)
