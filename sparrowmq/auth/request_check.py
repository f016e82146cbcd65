"""Asked before each request is handled: who sent it, and may they?

    a white-listed address           allowed
    no access key; an unknown one    denied
    a verified client certificate, and no access key      allowed as the account of its name
    the account's own addresses      needs no signature, and no permission; what administrators do, only if it is one
    a wrong signature                denied
    the account's permissions        permissions.py

An address that is white-listed for everybody may do everything: it is for the operator's own machine. Unlike Java: an
account's address makes no administrator of it, and only signed administrators get secrets.
Source: PlainAccessValidator and PlainPermissionManager.validate, Java 4.9.7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sparrowmq.auth import permissions
from sparrowmq.auth.account_files import AccountFiles
from sparrowmq.auth.accounts import PORT_BYTES, Account, Perm
from sparrowmq.auth.permissions import Peer, TopicAt
from sparrowmq.errors import AccessDenied, DenialKind
from sparrowmq.kernel.lanes import Lanes
from sparrowmq.protocol.names import MAX_TOPIC_LENGTH, RETRY
from sparrowmq.protocol.requests.request_table import Row
from sparrowmq.protocol.requests.signed_send import SignedSend
from sparrowmq.protocol.signature import ACCESS_KEY, ACCESS_KEY_AT, TOPIC_AT, SigningKey, values_of_send
from sparrowmq.protocol.wire.codec import decode_in_one_pass
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request

Check = Callable[[Peer, Command, Row, Request[Any]], None]
_PUB: Final = int(Perm.PUB)
_MAX_ADDRESSES: Final = 10_000
_MAX_TOPICS: Final = 10_000  # of an account, that are remembered


class AccountCheck:
    def __init__(self, files: AccountFiles, topic_at: TopicAt) -> None:
        self._files = files
        self._topic_at = topic_at
        self._white_by_address: dict[bytes, bool] = {}
        self._senders: dict[str, _Sender] = {}
        self._lanes: Lanes | None = None  # of signed sends
        files.on_change = self._load_accounts
        self._load_accounts()
        decode_in_one_pass(SignedSend.code, SignedSend)

    def __call__(self, peer: Peer, command: Command, row: Row, header: Request[Any]) -> None:
        """Do nothing if the request is allowed. Raises: AccessDenied."""
        # Of thousands of requests nearly all are sends, so no dict of fields is made for them.
        if not isinstance(header, SignedSend) or not self.is_known_send(peer, command, header):
            self.authorise(self.authenticate(peer, command, header), peer, command, row, header)

    def authenticate(self, peer: Peer, command: Command, header: Request[Any]) -> Account | None:
        """Return the account that the request names. It becomes `peer.principal` if it signed the request."""
        if isinstance(header, SignedSend):
            account = self._by_key.get(header.access_key)
            if account is not None and account.key.has_signed_send(values_of_send(header), command.body):
                peer.principal = account
                return account
        fields = command.ext_fields()
        if peer.certificate is not None and ACCESS_KEY not in fields:
            peer.principal = account = self._by_certificate.get(peer.certificate)
            return account
        account = self._by_key.get(fields.get(ACCESS_KEY, ""))
        is_signed = account is not None and account.key.has_signed_request(command, fields)
        peer.principal = account if is_signed else None
        return account

    def authorise(self, account: Account | None, peer: Peer, command: Command, row: Row, header: Request[Any]) -> None:
        """Do nothing if the account may do this, or the peer's address may. Raises: AccessDenied."""
        is_signed = account is not None and peer.principal is account
        if account is not None and is_signed and isinstance(header, SignedSend):
            topic, perm = header.topic, account.perms.get(header.topic)
            may_send = account.may(topic, _PUB) if perm is None else perm & _PUB != 0
            if may_send and not topic.startswith(RETRY):
                self._remember_sender(account, topic)
                return
        if self._has_white_addresses and self._has_white_address(peer):
            return
        if account is None:
            raise _unknown_account(command.ext_fields().get(ACCESS_KEY), peer.certificate)
        if not is_signed:
            if not self._has_own_address(account, peer, row):
                error = AccessDenied(f"Check signature failed for accessKey={account.access_key}")
                raise error.of_kind(DenialKind.WRONG_SIGNATURE)
        elif not (account.addresses and self._has_own_address(account, peer, row)):
            permissions.check(account, row, list(permissions.needs(row, header, command.body, self._topic_at)))
        if account.broker_names:
            permissions.check_own_broker(account, row, header)

    def is_known_send(self, peer: Peer, command: Command, header: SignedSend) -> bool:
        """Whether an account signed a send to a topic that it has sent to before. It becomes `peer.principal` then. If
        not, `authenticate` and `authorise` decide."""
        values = values_of_send(header)
        sender = self._senders.get(values[ACCESS_KEY_AT])
        if sender is None or values[TOPIC_AT] not in sender.topics:
            return False
        if not sender.key.has_signed_send(values, command.body):
            return False
        peer.principal = sender.account
        self._open_lane(sender.account, values[TOPIC_AT])
        return True

    def _remember_sender(self, account: Account, topic: str) -> None:
        sender = self._senders.get(account.access_key)
        if sender is None:
            sender = self._senders[account.access_key] = _Sender(account)
        if len(sender.topics) < _MAX_TOPICS and len(topic) <= MAX_TOPIC_LENGTH:
            sender.topics.add(topic)
            self._open_lane(account, topic)

    def use_lanes(self, lanes: Lanes) -> None:
        """Let lanes take the sends of which this check needs the signature alone."""
        self._lanes = lanes

    def _open_lane(self, account: Account, topic: str) -> None:
        if self._lanes is not None:
            self._lanes.open_sender(account.access_key.encode(), topic.encode(), account.key.hmac)

    @staticmethod
    def _has_own_address(account: Account, peer: Peer, row: Row) -> bool:
        if not account.addresses or not account.addresses.has(peer.host[:-PORT_BYTES]):
            return False
        permissions.check_admin(account, row)
        return True

    def _has_white_address(self, peer: Peer) -> bool:
        address = peer.host[:-PORT_BYTES]
        is_white = self._white_by_address.get(address)
        if is_white is None:
            if len(self._white_by_address) >= _MAX_ADDRESSES:
                self._white_by_address.clear()
            is_white = self._white_by_address[address] = self._accounts.addresses.has(address)
        return is_white

    def _load_accounts(self) -> None:
        self._accounts = self._files.current
        self._by_key = self._accounts.by_key
        self._by_certificate = self._accounts.by_certificate
        self._has_white_addresses = bool(self._accounts.addresses)
        self._white_by_address.clear()
        self._senders.clear()


class _Sender:
    """An account that sends, and the topics that it may send to by a signature alone."""

    __slots__ = ("account", "key", "topics")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.key: SigningKey = account.key
        self.topics: set[str] = set()


class Guard:
    """Asks every check, all of which must agree."""

    def __init__(self, checks: Sequence[Check]) -> None:
        first_check = checks[0] if checks else None
        self._accounts = first_check if isinstance(first_check, AccountCheck) else None
        self._other_checks = checks[1:] if self._accounts is not None else checks

    @property
    def only_accounts(self) -> AccountCheck | None:
        """The check of accounts, if there is no other one."""
        return None if self._other_checks else self._accounts

    def __call__(self, peer: Peer, command: Command, row: Row, header: Request[Any]) -> None:
        """Do nothing if the request is allowed. Raises: AccessDenied."""
        if self._accounts is not None:
            self._accounts(peer, command, row, header)
        for check in self._other_checks:
            check(peer, command, row, header)


def _unknown_account(access_key: str | None, certificate: str | None) -> AccessDenied:
    if access_key is None and certificate is not None:
        reason = f"No acl config for the certificate of {certificate}"
    else:
        reason = "No accessKey is configured" if access_key is None else f"No acl config for {access_key}"
    return AccessDenied(reason).of_kind(DenialKind.UNKNOWN_ACCOUNT)
