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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_IMODE
from typing import Any, Final

from sparrowmq.auth.accounts import ACCESS_KEY, KEYS, unknown_words
from sparrowmq.auth.addresses import Addresses
from sparrowmq.auth.document import Document
from sparrowmq.auth.users import User
from sparrowmq.core.snapshot import OWNER_ONLY, sync, write_synced
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.requests.bodies import DataVersion
from sparrowmq.settings.settings_files import ChangedFiles, read_text

log = logging.getLogger(__name__)
POLL_S: Final = 2.0  # a change takes effect at the second look that sees it, so within 5 s
_RETRY_S: Final = 2 * POLL_S
MAIN_FILE: Final = Path("conf", "plain_acl.yml")
FOLDER: Final = Path("conf", "acl")


class AccountFiles:
    """The files and their current accounts, another object after each change. New accounts go to `main`. Raises:
    ConfigError, there is no file, or one is broken."""

    def __init__(self, main: Path, folder: Path | None = None) -> None:
        self.main = main.absolute()
        self._folder = folder.absolute() if folder else None
        self._watched_files = ChangedFiles(self._paths, "accounts")
        self.current = _combine_accounts(self._read_documents())

    @property
    def problem(self) -> str:
        """Why the files do not take effect as they are now; "" if they do."""
        return self._watched_files.problem

    def poll(self) -> None:
        """Load changes that were the same at two looks. A broken file is reported once, and changes nothing."""
        self._watched_files.reload(self._load)

    def _load(self) -> None:
        documents = self._read_documents()
        if _sources(documents) == _sources(self.current.documents) and not self.problem:
            return
        self._refuse_emptied(documents)
        self.current = _combine_accounts(documents)
        log.info("%d accounts of %d files are in effect", len(self.current.by_key), len(self.current.documents))

    def with_account(self, fields: Mapping[str, Any], now_ms: int) -> AccountChange:
        """The change that creates or changes an account. Raises: ConfigError, the account is invalid, or its file has a
        change that is not in effect yet."""
        path = self.current.file_of.get(fields[ACCESS_KEY], self.main)
        return self._make_change([path], lambda document: document.set_account(fields), now_ms)

    def without_account(self, access_key: str, now_ms: int) -> AccountChange | None:
        """The change that removes an account from all files; None if there is none. Raises: ConfigError, as
        `with_account`. The entry that counts goes last: while another one would take its place, no client gains
        permissions."""
        if access_key not in self.current.by_key:
            return None
        paths = [path for path, document in self.current.documents.items() if document.account(access_key) is not None]
        return self._make_change(paths[::-1], lambda document: document.remove_account(access_key), now_ms)

    def with_addresses(self, patterns: Sequence[str], path: str, now_ms: int) -> AccountChange:
        """The change of the addresses that need no signature, in the main file or in `path`. Raises: ConfigError, a
        pattern is invalid, the file has a change that is not in effect yet, or `path` is none of the files (Java takes
        any path below its home)."""
        target = Path(path) if path else self.main
        if target != self.main and target not in self.current.documents:
            names = ", ".join(map(str, self._paths()))
            raise ConfigError(f"{path} is not one of the account files {names}")
        return self._make_change([target], lambda document: document.set_addresses(patterns), now_ms)

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

    def _make_change(self, paths: Iterable[Path], edit: Callable[[Document], None], now_ms: int) -> AccountChange:
        documents = {path: self._document_to_change(path) for path in paths}
        for document in documents.values():
            edit(document)
            document.count_change(now_ms)
        texts = {path: document.text() for path, document in documents.items()}
        new_documents = {path: Document(text, path) for path, text in texts.items()}
        return AccountChange(texts, _combine_accounts({**self.current.documents, **new_documents}))

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
    """The accounts of all files; the first file of an account counts. Raises: ConfigError, two accounts have the same
    certificate."""
    by_key: dict[str, User] = {}
    by_certificate: dict[str, User] = {}
    file_of: dict[str, Path] = {}
    for path, document in documents.items():
        for fields, user in zip(document.accounts, document.users, strict=True):
            name = user.access_key
            _warn_of_words(path, name, fields)
            if name in by_key:
                log.warning("%s: account %r is in %s too, which counts", path, name, file_of[name])
                continue
            by_key[name], file_of[name] = replace(user, colleagues=file_of), path
            first = by_certificate.setdefault(user.certificate, by_key[name])
            if user.certificate and first is not by_key[name]:
                raise ConfigError(
                    f"certificate {user.certificate!r} belongs to the accounts {first.access_key!r} and {name!r}; use "
                    "a certificate for one account only"
                )
    by_certificate.pop("", None)
    addresses = Addresses([pattern for document in documents.values() for pattern in document.addresses])
    return Accounts(by_key, by_certificate, file_of, addresses, documents)


def _warn_of_words(path: Path, name: str, fields: Mapping[str, Any]) -> None:
    for word in unknown_words(fields):
        log.warning("%s: account %r: %r is not a permission and counts as DENY", path, name, word)
    for key in [key for key in fields if key not in KEYS]:
        log.warning("%s: account %r: the unknown key %s is ignored", path, name, key)


def _read_file(path: Path) -> str:
    try:
        return read_text(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}); check its owner and its permissions") from error


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
        temporary.unlink(missing_ok=True)  # a killed process may have left it, with another mode
        write_synced(temporary, content, S_IMODE(target.stat().st_mode) if target.exists() else OWNER_ONLY)
        try:
            os.replace(temporary, target)
        except OSError:
            temporary.unlink()
            raise
        sync(target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
