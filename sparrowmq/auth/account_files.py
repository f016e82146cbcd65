"""The account files: find them, load them together, watch them for changes, and write changes.

    ROCKETMQ_HOME/conf/acl/**/*.yml, *.yaml     in the order of their names
    ROCKETMQ_HOME/conf/plain_acl.yml            the last; new accounts go here
or  the one that aclFile names

    globalWhiteRemoteAddresses: [10.10.103.*]
    accounts:
      - accessKey: RocketMQ
        secretKey: 12345678
        ...                             accounts.py
    dataVersion: [{counter: 3, timestamp: 1795144375341}]     sent with code 52; counts changes over the wire

If several files have an account, the first one counts. The files take effect together or not at all. A broken file
stops a start; later it changes nothing, and is reported once. A change takes effect at the second check that finds the
same files, because a half-written file could show an administrator without its limits; a change over the wire at once.
Source: PlainPermissionManager.load, AclFileWatchService and AclUtils, Java 4.9.7, where half of a broken file counts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sparrowmq.auth.accounts import ACCESS_KEY, KEYS, list_of, parse_account, text_of, unknown_words
from sparrowmq.auth.addresses import Addresses
from sparrowmq.auth.users import User
from sparrowmq.core.digits import whole_number
from sparrowmq.core.snapshot import sync
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.requests.bodies import DataVersion
from sparrowmq.settings.settings_files import ChangedFiles, read_text, value_of

_Node = Any  # yaml.Node, whose kinds PyYAML's types do not tell apart
ADDRESSES_KEY: Final = "globalWhiteRemoteAddresses"
ACCOUNTS_KEY: Final = "accounts"
VERSION_KEY: Final = "dataVersion"
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_MAPPING_TAG: Final = "tag:yaml.org,2002:map"
_SEQUENCE_TAG: Final = "tag:yaml.org,2002:seq"
_INTEGER_TAG: Final = "tag:yaml.org,2002:int"
_BOOLEAN_TAG: Final = "tag:yaml.org,2002:bool"
log = logging.getLogger(__name__)
POLL_S: Final = 2.0  # a change takes effect at the second look that sees it, so within 5 s
_RETRY_S: Final = 2 * POLL_S
MAIN_FILE: Final = Path("conf", "plain_acl.yml")
FOLDER: Final = Path("conf", "acl")
_OWNER_ONLY_MODE: Final = 0o600
_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class AccountFiles:
    """The files and their current accounts, another object after each change. New accounts go to `main`. Raises:
    ConfigError, there is no file, or one is broken."""

    def __init__(self, main: Path, folder: Path | None = None) -> None:
        self.main = main.absolute()
        self._folder = folder.absolute() if folder else None
        self._watched_files = ChangedFiles(self._paths)
        self._logged_error = ""
        self.current = _combine_accounts(self._read_documents())

    @property
    def problem(self) -> str:
        """Why the files do not take effect as they are now; "" if they do."""
        return f"the accounts do not change: {self._logged_error}" if self._logged_error else ""

    def poll(self) -> None:
        """Load changes that were the same at two looks. A broken file is reported once, and changes nothing."""
        if not self._watched_files.has_changed():
            return
        try:
            documents = self._read_documents()
            if _sources(documents) == _sources(self.current.documents) and not self._logged_error:
                return
            self._refuse_emptied(documents)
            self.current = _combine_accounts(documents)
        except ConfigError as error:
            if isinstance(error.__cause__, OSError):
                self._watched_files.loaded = None  # the file may become readable without a change that shows
            if str(error) != self._logged_error:
                self._logged_error = str(error)
                log.error("the accounts do not change until this is fixed: %s", error)
        else:
            self._logged_error = ""
            log.info("%d accounts of %d files are in effect", len(self.current.by_key), len(self.current.documents))

    def with_account(self, fields: Mapping[str, Any], now_ms: int) -> AccountChange:
        """The change that creates or changes an account. Raises: ConfigError, the account is invalid, or its file has a
        change that is not in effect yet."""
        path = self.current.file_of.get(fields[ACCESS_KEY], self.main)
        document = self._document_to_change(path)
        document.set_account(fields)
        return self._make_change({path: document}, now_ms)

    def without_account(self, access_key: str, now_ms: int) -> AccountChange | None:
        """The change that removes an account from all files; None if there is none. Raises: ConfigError, as
        `with_account`. The entry that counts goes last: while another one would take its place, no client gains
        permissions."""
        if access_key not in self.current.by_key:
            return None
        paths = [path for path, document in self.current.documents.items() if document.has_account(access_key)]
        documents = {path: self._document_to_change(path) for path in reversed(paths)}
        for document in documents.values():
            document.remove_account(access_key)
        return self._make_change(documents, now_ms)

    def with_addresses(self, patterns: Sequence[str], path: str, now_ms: int) -> AccountChange:
        """The change of the addresses that need no signature, in the main file or in `path`. Raises: ConfigError, a
        pattern is invalid, the file has a change that is not in effect yet, or `path` is none of the files (Java takes
        any path below its home)."""
        target = Path(path) if path else self.main
        if target != self.main and target not in self.current.documents:
            names = ", ".join(map(str, self._paths()))
            raise ConfigError(f"{path} is not one of the account files {names}")
        document = self._document_to_change(target)
        document.set_addresses(patterns)
        return self._make_change({target: document}, now_ms)

    def apply(self, change: AccountChange) -> None:
        """Put a written change into effect at once. Looks go on, because other files may have changed too."""
        self.current = change.accounts

    def _document_to_change(self, path: Path) -> Document:
        """The document of a file, to change it. Raises: ConfigError, it is not the one in effect: a change that is
        being written would be lost."""
        document = Document(_read_file(path) if path.exists() else "", path)
        current_document = self.current.documents.get(path)
        if document.source != (current_document.source if current_document else ""):
            raise ConfigError(
                f"{path} has changed, and the change is not in effect yet: try again in {_RETRY_S:g} s; if the file is "
                "broken, the broker's log says how to fix it"
            )
        return document

    def _make_change(self, changed_documents: Mapping[Path, Document], now_ms: int) -> AccountChange:
        for document in changed_documents.values():
            document.count_change(now_ms)
        texts = {path: document.text() for path, document in changed_documents.items()}
        documents = {path: Document(text, path) for path, text in texts.items()}
        return AccountChange(texts, _combine_accounts({**self.current.documents, **documents}))

    def _read_documents(self) -> dict[Path, Document]:
        paths = self._paths()
        if not paths:
            raise ConfigError(
                f"aclEnable=true, but there are no accounts: write {self.main} "
                "(docs/operate/security.md has an example), or name another file with aclFile"
            )
        return {path: Document(_read_file(path), path) for path in paths}

    def _refuse_emptied(self, documents: Mapping[Path, Document]) -> None:
        """Raises: ConfigError, a file has become empty, as a file does that is about to be written."""
        for path, document in documents.items():
            current_document = self.current.documents.get(path)
            if current_document and current_document.source.strip() and not document.source.strip():
                raise ConfigError(f"{path} is empty; to have no accounts in it, write 'accounts: []' or delete it")

    def _paths(self) -> list[Path]:
        paths_found = sorted(self._folder.rglob("*")) if self._folder and self._folder.is_dir() else []
        paths = [path for path in paths_found if path.suffix in (".yml", ".yaml") and path.is_file()]
        return paths + [path for path in (self.main,) if path.exists() and path not in paths]


def load_account_files(home: Path | None, file: Path | None) -> AccountFiles:
    """The files of a broker with these settings. Raises: ConfigError."""
    if file is not None:
        return AccountFiles(file)
    if home is None:
        raise ConfigError(
            "aclEnable=true, but nothing says where the accounts are: set ROCKETMQ_HOME to the folder that has "
            "conf/plain_acl.yml, or aclFile to such a file"
        )
    return AccountFiles(home / MAIN_FILE, home / FOLDER)


@dataclass(frozen=True, slots=True)
class Accounts:
    by_key: Mapping[str, User]
    by_certificate: Mapping[str, User]
    file_of: Mapping[str, Path]
    addresses: Addresses
    documents: Mapping[Path, Document]

    @property
    def versions(self) -> dict[str, DataVersion]:
        return {str(path): document.version for path, document in self.documents.items()}


@dataclass(frozen=True, slots=True)
class AccountChange:
    """The next content of one file or of several, in the order of writing. All files are valid with it."""

    texts: Mapping[Path, str]
    accounts: Accounts

    def write(self) -> None:
        """Write each file, whole or not at all. Blocks: call it in a thread. Raises: OSError, as `replace_secret_file`.
        The files before the one that it names are written."""
        for path, text in self.texts.items():
            replace_secret_file(path, text.encode())


def _sources(documents: Mapping[Path, Document]) -> dict[Path, str]:
    return {path: document.source for path, document in documents.items()}


def _combine_accounts(documents: Mapping[Path, Document]) -> Accounts:
    """The accounts of all files; the first file of an account counts. Raises: ConfigError, a file is broken."""
    by_key: dict[str, User] = {}
    file_of: dict[str, Path] = {}
    for path, document in documents.items():
        for account in _parse_accounts(document):
            if account.access_key in by_key:
                log.warning(
                    "%s: account %r is in %s too, which counts",
                    *(path, account.access_key, file_of[account.access_key]),
                )
                continue
            by_key[account.access_key], file_of[account.access_key] = (replace(account, colleagues=file_of), path)
    return Accounts(by_key, _by_certificate(by_key), file_of, _parse_addresses(documents.values()), documents)


def _by_certificate(by_key: Mapping[str, User]) -> dict[str, User]:
    """The accounts that a certificate may stand for. Raises: ConfigError, two have the same certificate."""
    accounts: dict[str, User] = {}
    for account in by_key.values():
        first_account = accounts.setdefault(account.certificate, account)
        if account.certificate and first_account is not account:
            raise ConfigError(
                f"certificate {account.certificate!r} belongs to the accounts {first_account.access_key!r} and "
                f"{account.access_key!r}; use a certificate for one account only"
            )
    accounts.pop("", None)
    return accounts


def _parse_accounts(document: Document) -> list[User]:
    accounts = []
    for fields in document.accounts:
        try:
            accounts.append(parse_account(fields))
        except ConfigError as error:
            raise ConfigError(f"{document.name}: {error}") from None
        for word in unknown_words(fields):
            log.warning(
                "%s: account %r: %r is not a permission and counts as DENY", document.name, fields[ACCESS_KEY], word
            )
        for key in [key for key in fields if key not in KEYS]:
            log.warning("%s: account %r: the unknown key %s is ignored", document.name, fields[ACCESS_KEY], key)
    return accounts


def _parse_addresses(documents: Any) -> Addresses:
    patterns: list[str] = []
    for document in documents:
        try:
            Addresses(document.addresses)
        except ValueError as error:
            raise ConfigError(f"{document.name}: {error}") from None
        patterns += document.addresses
    return Addresses(patterns)


def _read_file(path: Path) -> str:
    try:
        return read_text(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}); check its owner and its permissions") from error


class Document:
    """One file's content, to read it as it is written and to change it without touching unknown parts.

    Scalars are the text of the file. Unlike Java: a secret of digits keeps its leading zeros, and 1e7 or 0x1F keep
    their form. A change edits the syntax tree of the file: other values stay, comments are lost.

    Raises: ConfigError, it is not YAML, or not a table of accounts and addresses. The error names the file.
    """

    def __init__(self, text: str, name: object) -> None:
        import yaml  # here and not above: brokers without access control do not need it

        self.name = name
        self.source = text
        try:
            self._root = yaml.compose(text) or _make_mapping()
            values = _plain_values(self._root, name)
        except (yaml.YAMLError, RecursionError) as error:
            raise ConfigError(f"{name} is not YAML: {_yaml_error_reason(error)}") from None
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
        if not isinstance(values, dict):
            raise ConfigError(f"{name}: it must be a table with {ACCOUNTS_KEY} and {ADDRESSES_KEY}")
        self._values: Mapping[str, Any] = values

    @property
    def addresses(self) -> Sequence[str]:
        """The patterns of addresses that need no signature. Raises: ConfigError."""
        try:
            return list_of(self._values, ADDRESSES_KEY)
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from None

    @property
    def accounts(self) -> Sequence[Mapping[str, Any]]:
        accounts = self._values.get(ACCOUNTS_KEY) or []
        if not isinstance(accounts, list) or not all(isinstance(each, dict) for each in accounts):
            raise ConfigError(f"{self.name}: {ACCOUNTS_KEY} must be a list of tables, each beginning '- accessKey: '")
        return accounts

    def has_account(self, access_key: str) -> bool:
        return any(text_of(fields, ACCESS_KEY) == access_key for fields in self.accounts)

    @property
    def version(self) -> DataVersion:
        """The number and the time of changes over the wire."""
        versions = self._values.get(VERSION_KEY)
        first = versions[0] if isinstance(versions, list) and versions else {}
        numbers = [first.get(key, "") if isinstance(first, dict) else "" for key in ("counter", "timestamp")]
        counter, timestamp = [whole_number(str(text)) or 0 for text in numbers]
        return DataVersion(counter, timestamp)

    # Changes. Each edits only the tree. `text` is the file to write; a new Document has the new values.

    def set_account(self, fields: Mapping[str, Any]) -> None:
        """Create an account, or change the given fields of an existing one."""
        account = next(self._account_nodes(str(fields[ACCESS_KEY])), None)
        if account is None:
            account = _make_mapping()
            self._sequence_of(ACCOUNTS_KEY).value.append(account)
        for key, value in fields.items():
            _set_value(account, key, _make_node(value))

    def remove_account(self, access_key: str) -> bool:
        """Remove an account. Returns whether it existed."""
        removed_nodes = list(self._account_nodes(access_key))
        if removed_nodes:
            accounts = self._sequence_of(ACCOUNTS_KEY)
            accounts.value = [each for each in accounts.value if not any(each is node for node in removed_nodes)]
        return bool(removed_nodes)

    def set_addresses(self, patterns: Sequence[str]) -> None:
        _set_value(self._root, ADDRESSES_KEY, _make_node(list(patterns)))

    def count_change(self, now_ms: int) -> None:
        version = {"counter": self.version.counter + 1, "timestamp": now_ms}
        _set_value(self._root, VERSION_KEY, _make_node([version]))

    def text(self) -> str:
        import yaml

        return yaml.serialize(self._root, allow_unicode=True)

    def _account_nodes(self, access_key: str) -> Iterator[_Node]:
        for node in self._sequence_of(ACCOUNTS_KEY).value:
            if text_of(_plain_values(node, self.name), ACCESS_KEY) == access_key:
                yield node

    def _sequence_of(self, key: str) -> _Node:
        for name, node in self._root.value:
            if name.value == key and node.id == "sequence":
                return node
        sequence = _make_node([])
        _set_value(self._root, key, sequence)
        return sequence


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
        return "" if node.value in ("~", "null") and node.style is None else node.value
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
        values[str(key.value)] = _plain_values(value, name, ids)
    return values


def _set_value(mapping: _Node, key: str, node: _Node) -> None:
    pairs = [(name, value) for name, value in mapping.value]
    for number, (name, _) in enumerate(pairs):
        if name.value == key:
            pairs[number] = (name, node)
            break
    else:
        pairs.append((_make_node(key), node))
    mapping.value = pairs


def _make_mapping() -> _Node:
    import yaml

    return yaml.MappingNode(_MAPPING_TAG, [], flow_style=False)


def _make_node(value: Any) -> _Node:
    import yaml

    if isinstance(value, bool):
        return yaml.ScalarNode(_BOOLEAN_TAG, str(value).lower())
    if isinstance(value, int):
        return yaml.ScalarNode(_INTEGER_TAG, str(value))
    if isinstance(value, str):
        return yaml.ScalarNode(_TEXT_TAG, value)
    if isinstance(value, Mapping):
        pairs = [(_make_node(key), _make_node(item)) for key, item in value.items()]
        return yaml.MappingNode(_MAPPING_TAG, pairs, flow_style=False)
    return yaml.SequenceNode(_SEQUENCE_TAG, [_make_node(item) for item in value], flow_style=False)


def replace_secret_file(path: Path, content: bytes) -> None:
    """Replace a file with secrets: whole or not at all, and never readable for more users than before.

        write plain_acl.yml.tmp, with the mode of plain_acl.yml from its first byte on; sync it
        rename plain_acl.yml.tmp to plain_acl.yml; sync the folder

    At any moment the old file or the new one has the name that a start reads. A symbolic link stays a link. Only the
    owner can read a new file.

    Raises: OSError, the file has its old content. Only if the sync of its folder failed, it has the new content, which
    a power cut may undo.
    """
    target = path.resolve()
    temporary = target.with_name(target.name + ".tmp")
    try:
        try:
            _write_synced(temporary, content, _mode_of(target))
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync(target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _mode_of(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return _OWNER_ONLY_MODE


def _write_synced(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)  # a killed process may have left it, with another mode
    with open(os.open(path, _CREATE_FLAGS, _OWNER_ONLY_MODE), "wb") as file:
        os.fchmod(file.fileno(), mode)  # while it is still empty; open() applies the umask
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
