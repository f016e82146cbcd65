"""The files that accounts stand in: found, loaded together, looked at again, and changed.

    ROCKETMQ_HOME/conf/acl/**/*.yml, *.yaml     in the order of their names
    ROCKETMQ_HOME/conf/plain_acl.yml            the last; new accounts go here
or  the one that aclFile names

Of an account that stands in several files the first counts. All files hold together or not at all: one that is broken
at the start ends the start, and later changes nothing of what was there before, which is told once. A change holds when
it has stayed for one look, as who is cut off half-way may be an administrator without the limits that come below; what
changes them over the wire holds at once.
Source: PlainPermissionManager.load and AclFileWatchService, Java 4.9.7; there a broken file leaves half of itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparrowmq.auth import writing
from sparrowmq.auth.accounts import ACCESS_KEY, KEYS, Account, parse_account, unknown_words
from sparrowmq.auth.address_patterns import Addresses
from sparrowmq.auth.document import Document
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.requests.bodies import DataVersion

log = logging.getLogger(__name__)

LOOK_PERIOD_S: Final = 2.0  # a change shall hold within 5 s, and does at the second look that sees it
_SOON_S: Final = 2 * LOOK_PERIOD_S
MAIN_FILE: Final = Path("conf", "plain_acl.yml")
FOLDER: Final = Path("conf", "acl")

_Print = tuple[tuple[Path, int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Accounts:
    """What all files say together."""

    by_key: Mapping[str, Account]
    file_of: Mapping[str, Path]
    addresses: Addresses
    documents: Mapping[Path, Document]

    @property
    def versions(self) -> dict[str, DataVersion]:
        return {str(path): document.version for path, document in self.documents.items()}


@dataclass(frozen=True, slots=True)
class Change:
    """The next content of a file, or of several, in the order to write them. With it all files together still hold."""

    texts: Mapping[Path, str]
    accounts: Accounts

    def write(self) -> None:
        """Put it on disk, each file whole or not at all; for a thread.

        Raises:
            OSError: as `writing.replace`; of several files those before the one that it names are written.
        """
        for path, text in self.texts.items():
            writing.replace(path, text.encode())


class AccountFiles:
    """The files and what they say now.

    Args:
        main: where new accounts go.
        folder: where more files are, if there is one.
        on_change: called when `now` has become another.
    Raises:
        ConfigError: there is no file, or one is broken.
    """

    def __init__(self, main: Path, folder: Path | None = None) -> None:
        self.main = main.absolute()
        self._folder = folder.absolute() if folder else None
        self.on_change: Callable[[], None] = lambda: None
        self._seen = self._print()
        self._loaded: _Print | None = self._seen
        self._told = ""
        self.now = _together(self._documents())

    def look(self) -> None:
        """Take over what has changed and stayed for a look; what is broken is told once, and changes nothing."""
        last, self._seen = self._seen, self._print()
        if self._seen != last or self._seen == self._loaded:  # Whoever writes a file is done with it.
            return
        self._loaded = self._seen
        try:
            documents = self._documents()
            if _texts(documents) == _texts(self.now.documents) and not self._told:
                return
            self._refuse_emptied(documents)
            self._take(_together(documents))
        except ConfigError as error:
            if isinstance(error.__cause__, OSError):
                self._loaded = None  # It may be readable at the next look, and look as it does now.
            if str(error) != self._told:
                self._told = str(error)
                log.error("the accounts stay as they were, until this is mended: %s", error)
        else:
            self._told = ""
            log.info(
                "%d accounts of %d files hold from now on", len(self.now.by_key), len(self.now.documents)
            )

    def with_account(self, fields: Mapping[str, Any], now_ms: int) -> Change:
        """An account made or changed.

        Raises:
            ConfigError: it would not be one, or what the file says does not hold yet.
        """
        path = self.now.file_of.get(fields[ACCESS_KEY], self.main)
        document = self._document(path)
        document.set_account(fields)
        return self._change({path: document}, now_ms)

    def without_account(self, access_key: str, now_ms: int) -> Change | None:
        """An account removed from all files; None, there is none.

        The one that counts goes last: as long as another is there, nobody may more than before.

        Raises:
            ConfigError: what a file says does not hold yet.
        """
        if access_key not in self.now.by_key:
            return None
        paths = [path for path, document in self.now.documents.items() if document.has_account(access_key)]
        changed = {path: self._document(path) for path in reversed(paths)}
        for document in changed.values():
            document.remove_account(access_key)
        return self._change(changed, now_ms)

    def with_addresses(self, patterns: Sequence[str], path: str, now_ms: int) -> Change:
        """The addresses that hold for everybody, in the main file or the one that is named.

        Raises:
            ConfigError: a pattern is none, or what the file says does not hold yet, or this is none of the files; in
                Java it may be any below its home.
        """
        target = Path(path) if path else self.main
        if target != self.main and target not in self.now.documents:
            known = ", ".join(map(str, self._paths()))
            raise ConfigError(f"{path} is none of the files with accounts, which are {known}")
        document = self._document(target)
        document.set_addresses(patterns)
        return self._change({target: document}, now_ms)

    def take(self, change: Change) -> None:
        """Let a change that was written hold at once; looks go on, as files may have been changed beside it."""
        self._take(change.accounts)

    def _document(self, path: Path) -> Document:
        """What a file says, to be changed.

        Raises:
            ConfigError: that is not what holds: it may be half-written, and would be lost.
        """
        document = Document(_read(path) if path.exists() else "", path)
        held = self.now.documents.get(path)
        if document.source != (held.source if held else ""):
            raise ConfigError(
                f"{path} has changed and does not hold yet: try again in {_SOON_S:g} s; if it is broken, the broker's "
                "log says how to mend it"
            )
        return document

    def _change(self, changed: Mapping[Path, Document], now_ms: int) -> Change:
        for document in changed.values():
            document.count_change(now_ms)
        texts = {path: document.text() for path, document in changed.items()}
        documents = {path: Document(text, path) for path, text in texts.items()}
        return Change(texts, _together({**self.now.documents, **documents}))

    def _take(self, accounts: Accounts) -> None:
        self.now = accounts
        self.on_change()

    def _documents(self) -> dict[Path, Document]:
        """What all files say. Raises: ConfigError, there is none, or one is broken."""
        paths = self._paths()
        if not paths:
            raise ConfigError(
                f"aclEnable=true, but there are no accounts: write {self.main} "
                "(docs/operate/security.md has an example), or name another file with aclFile"
            )
        return {path: Document(_read(path), path) for path in paths}

    def _refuse_emptied(self, documents: Mapping[Path, Document]) -> None:
        """Raises: ConfigError, a file says nothing any more, as one that is about to be written."""
        for path, document in documents.items():
            held = self.now.documents.get(path)
            if held and held.source.strip() and not document.source.strip():
                raise ConfigError(
                    f"{path} is empty; if it shall have no accounts, write 'accounts: []' or delete it"
                )

    def _paths(self) -> list[Path]:
        found = sorted(self._folder.rglob("*")) if self._folder and self._folder.is_dir() else []
        paths = [path for path in found if path.suffix in (".yml", ".yaml") and path.is_file()]
        return paths + [path for path in (self.main,) if path.exists() and path not in paths]

    def _print(self) -> _Print:
        """What tells that a file was changed, or is for others to read, without reading it."""
        prints = []
        for path in self._paths():
            try:
                stat = path.stat()
            except OSError:  # it went just now
                continue
            prints.append((path, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino))
        return tuple(prints)


def account_files(home: Path | None, file: Path | None) -> AccountFiles:
    """The files of a broker with these settings. Raises: ConfigError."""
    if file is not None:
        return AccountFiles(file)
    if home is None:
        raise ConfigError(
            "aclEnable=true, but nothing says where the accounts are: set ROCKETMQ_HOME to the folder that has "
            "conf/plain_acl.yml, or aclFile to such a file"
        )
    return AccountFiles(home / MAIN_FILE, home / FOLDER)


def _texts(documents: Mapping[Path, Document]) -> dict[Path, str]:
    return {path: document.source for path, document in documents.items()}


def _together(documents: Mapping[Path, Document]) -> Accounts:
    """What files say together, the first of them first. Raises: ConfigError, one is broken."""
    by_key: dict[str, Account] = {}
    file_of: dict[str, Path] = {}
    for path, document in documents.items():
        for account in _accounts(document):
            if account.access_key in by_key:
                log.warning(
                    "%s: account %r stands in %s already, which counts",
                    *(path, account.access_key, file_of[account.access_key]),
                )
                continue
            by_key[account.access_key], file_of[account.access_key] = account, path
    return Accounts(by_key, file_of, _addresses(documents.values()), documents)


def _accounts(document: Document) -> list[Account]:
    accounts = []
    for fields in document.accounts:
        try:
            accounts.append(parse_account(fields))
        except ConfigError as error:
            raise ConfigError(f"{document.name}: {error}") from None
        for word in unknown_words(fields):
            log.warning(
                "%s: account %r: the permission %r is none, and so DENY",
                document.name,
                fields[ACCESS_KEY],
                word,
            )
        for key in [key for key in fields if key not in KEYS]:
            log.warning(
                "%s: account %r: the unknown key %s is ignored", document.name, fields[ACCESS_KEY], key
            )
    return accounts


def _addresses(documents: Any) -> Addresses:
    patterns: list[str] = []
    for document in documents:
        try:
            Addresses(document.addresses)
        except ValueError as error:
            raise ConfigError(f"{document.name}: {error}") from None
        patterns += document.addresses
    return Addresses(patterns)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot read {path} ({reason}); check its owner, its permissions and that it is UTF-8"
        ) from error
