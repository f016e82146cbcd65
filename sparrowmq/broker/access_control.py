"""Access control by the settings of a broker, and its users.

aclEnable=false     no guard: the dispatcher checks nothing
aclEnable=true      auth/request_check.py with auth/account_files.py, which checks the files every two seconds
authenticationEnabled=true   auth/user_check.py with `Users`
auditLog=true       auth/audit_log.py notes requests for administrators, and denials
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.change_log import UNLOGGED, Change, ChangeLog, split_table
from sparrowmq.broker.part import Chore, Part
from sparrowmq.broker.saved_state import SavedFile, saved_content
from sparrowmq.errors import ConfigError, RemoteProtocolError
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.metrics.condition_kinds import ACCOUNTS_NOT_LOADED, AUDIT_NOT_WRITTEN, DENIALS, Probe
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.requests.bodies import DataVersion
from sparrowmq.protocol.requests.user_headers import SUBJECT, Policy, UserEntry, UserPolicies, UserTable
from sparrowmq.protocol.wire import json
from sparrowmq.protocol.wire.connection import Sign
from sparrowmq.settings.user_settings import INNER_CREDENTIALS, check_one_kind, named_secret
from sparrowmq.store.message_store import MessageStore

if TYPE_CHECKING:
    from sparrowmq.auth.account_files import AccountFiles
    from sparrowmq.auth.audit_log import Audit
    from sparrowmq.auth.permissions import TopicAt
    from sparrowmq.auth.request_check import AccountCheck
    from sparrowmq.auth.user_check import UserCheck
    from sparrowmq.auth.users import User

log = logging.getLogger(__name__)
USERS_FILE: Final = "users.json"
_NO_ACCOUNTS: Final[Mapping[str, User]] = {}


class AccessControl:
    """The guard that a broker asks before it handles a request; None, as `audit`, without access control.

    `files` are the account files of an earlier broker of this member. `users` decide if they are not None (ACL 2.0).
    Raises: ConfigError.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        topic_at: TopicAt,
        clock: Clock | None = None,
        users: Users | None = None,
        files: AccountFiles | None = None,
    ) -> None:
        check_one_kind(settings, settings.acl)
        self.guard: AccountCheck | UserCheck | None = None
        self.account_check: AccountCheck | None = None
        self.users: Users | None = None
        self._is_unlimited = not settings.authorization
        self.files: AccountFiles | None = None
        self.audit: Audit | None = None
        if settings.acl:
            # A broker without access control loads nothing of auth/.
            from sparrowmq.auth.account_files import load_account_files
            from sparrowmq.auth.request_check import AccountCheck

            self.files = files or load_account_files(settings.home, settings.acl_file)
            self.guard = self.account_check = AccountCheck(self.files, topic_at)
        elif settings.authentication:
            from sparrowmq.auth.user_check import UserCheck, UserRules

            assert users is not None
            self.users = users
            rules = UserRules(settings.cluster, settings.authentication_whitelist, settings.authorization_whitelist)
            self.guard = UserCheck(rules, self.accounts, topic_at)
        if self.guard is not None:
            from sparrowmq.auth.audit_log import Audit

            path = settings.audit_file if settings.audit_log else None
            self.audit = Audit(path, clock or SystemClock())

    def accounts(self) -> Mapping[str, User]:
        """Return all accounts by their access keys: another table after each change of accounts, users or policies."""
        if self.files is not None:
            return self.files.current.by_key
        return self.users.principals(self._is_unlimited) if self.users is not None else _NO_ACCOUNTS

    def may_send(self, account: str, topic: str) -> bool | None:
        """Whether an account, by its access key, may send to a topic; None if there is no such account."""
        if self.guard is None:
            return True
        from sparrowmq.auth.users import PUB

        account_entry = self.accounts().get(account)
        return None if account_entry is None else account_entry.may(topic, PUB)

    def part(self, *handlers: object) -> Part:
        if self.audit is None:
            return Part(handlers)
        from sparrowmq.auth.account_files import POLL_S
        from sparrowmq.auth.audit_log import WRITE_PERIOD_S

        audit, files = self.audit, self.files

        async def write_audit() -> None:
            if audit.is_due:
                await asyncio.to_thread(audit.write)

        chores = [Chore("audit log", WRITE_PERIOD_S, write_audit)]
        probes: list[Probe] = [
            (AUDIT_NOT_WRITTEN, lambda: audit.problem),
            (DENIALS, lambda: audit.repeated_denials.last),
        ]
        if files is not None:
            chores.append(Chore("accounts", POLL_S, files.poll))
            probes.append((ACCOUNTS_NOT_LOADED, lambda: files.problem))
        return Part(handlers, tuple(chores), saves=(write_audit,), probes=tuple(probes))


def create_first_users(settings: BrokerSettings, users: Users, *, may_fail: bool = False) -> None:
    """Create the users of the settings and of plain_acl.yml, unless they exist. Raises: ConfigError, also without any
    user.

    With `may_fail`, as at an elected master, a file that cannot be used is only logged if there are users.
    """
    if not settings.authentication:
        return
    from sparrowmq.auth.first_users import first_users, no_users_error

    try:
        for user, policies in first_users(settings, settings.home, settings.acl_file):
            if users.get(user.username) is None:
                users.put(user)
                users.set_policies(user.username, policies)
                log.info("user %s is created from the settings", user.username)
    except ConfigError as error:
        if not may_fail or not users.table:
            raise
        log.error("the missing users of the settings are not created: %s", error)
    if not users.table:
        raise no_users_error()


def topics_of(store: MessageStore) -> TopicAt:
    """Return a function that finds whose record is at an offset of the log, if its queue has it there."""

    def topic_at(offset: int) -> str | None:
        from sparrowmq.auth.permissions import UNKNOWN  # a broker without access control never asks

        view = store.record_at(offset)
        if view is None:
            return None
        try:
            message = record.decode(view, check_crc=False)
        except RemoteProtocolError:
            return UNKNOWN
        store.publish()
        queue = store.queues.get(message.topic, message.queue_id)
        entry = queue.entry(message.queue_offset) if queue is not None else None
        if entry is None or entry.offset != offset:
            return UNKNOWN
        return message.topic

    return topic_at


def sign_of(settings: BrokerSettings) -> Sign | None:
    """Return the signature of our requests to other servers; None without an account for them. Raises: ConfigError."""
    access_key, secret_key = settings.access_key, settings.secret_key
    if not access_key and not secret_key and settings.inner_credentials:
        access_key, secret_key = named_secret(settings.inner_credentials, INNER_CREDENTIALS)
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        raise ConfigError("brokerAccessKey and brokerSecretKey belong together: set both, or none")
    from sparrowmq.protocol.signature import signer  # brokers without accounts load no hashes

    return signer(access_key, secret_key)


class Users:
    """The users and their policies (ACL 2.0), with one version. Saved in `users.json`.

    Passwords are in plain text, because the check of a signature needs them (decision 78). So only the owner can read
    the file.
    """

    def __init__(
        self, path: Path, clock: Clock, replayed: UserTable | None = None, change_log: ChangeLog = UNLOGGED
    ) -> None:
        self._clock = clock
        self._principals: Mapping[str, User] | None = None  # those of now, once they were asked for
        self._change_log = change_log
        saved = replayed or saved_content(path, UserTable, json.decode) or UserTable()
        self.version = saved.data_version
        self.table: dict[str, UserEntry] = saved.users
        self.policies: dict[str, list[Policy]] = saved.policies
        self.file = SavedFile(path, self.content, is_secret=True, change_log=change_log)

    def get(self, name: str) -> UserEntry | None:
        return self.table.get(name)

    def principals(self, is_unlimited: bool) -> Mapping[str, User]:
        """Return all users as principals of requests: another table after each change."""
        if self._principals is None:
            from sparrowmq.auth.users import principals

            self._principals = principals(self.table, self.policies, is_unlimited=is_unlimited)
        return self._principals

    def of_subject(self, name: str) -> UserPolicies | None:
        policies = self.policies.get(name)
        return UserPolicies(SUBJECT + name, policies) if policies else None

    def put(self, user: UserEntry) -> None:
        self.table[user.username] = user
        self._note_change()
        self._change_log.note(Change(users=[user], users_version=self.version))

    def delete(self, name: str) -> bool:
        if self.table.pop(name, None) is None:
            return False
        self.policies.pop(name, None)
        self._note_change()
        self._change_log.note(Change(no_user=name, users_version=self.version))
        return True

    def set_policies(self, name: str, policies: list[Policy]) -> None:
        if policies:
            self.policies[name] = policies
        else:
            self.policies.pop(name, None)
        self._note_change()
        self._change_log.note(Change(policies=[UserPolicies(SUBJECT + name, policies)], users_version=self.version))

    def content(self) -> UserTable:
        return UserTable(self.version, dict(self.table), dict(self.policies), self._change_log.mark())

    def snapshot(self) -> Iterator[Change]:
        for users in split_table(self.table, self._change_log.max_record_bytes):
            yield Change(users=users, users_version=self.version)
        for name in list(self.policies):
            policies = self.of_subject(name)
            if policies is not None:
                yield Change(policies=[policies], users_version=self.version)

    def replace(self, version: DataVersion, users: dict[str, UserEntry], policies: dict[str, list[Policy]]) -> None:
        """Have the users of these tables, which the caller may change further."""
        self.version, self.table, self.policies = version, users, policies
        self._principals = None
        self.file.touch()

    def _note_change(self) -> None:
        self.version = self.version.after_change(self._clock.now_ms())
        self._principals = None
        self.file.touch()
