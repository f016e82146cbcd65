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

from functools import lru_cache
from typing import Any, Final

from sparrowmq.auth import permissions
from sparrowmq.auth.account_files import AccountFiles
from sparrowmq.auth.addresses import PORT_BYTES, Addresses
from sparrowmq.auth.permissions import Peer, TopicAt
from sparrowmq.auth.users import PUB, User
from sparrowmq.errors import AccessDenied, DenialKind
from sparrowmq.kernel.lanes import Lanes
from sparrowmq.protocol.names import MAX_TOPIC_LENGTH, RETRY
from sparrowmq.protocol.requests.headers import SendMessageV2
from sparrowmq.protocol.requests.request_table import Row
from sparrowmq.protocol.signature import ACCESS_KEY
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request

_MAX_ADDRESSES: Final = 10_000


class AccountCheck:
    def __init__(self, files: AccountFiles, topic_at: TopicAt) -> None:
        self._files = files
        self._topic_at = topic_at
        self._lanes: Lanes | None = None  # of signed sends

    def __call__(self, peer: Peer, command: Command, row: Row, header: Request[Any]) -> None:
        """Do nothing if the request is allowed. Raises: AccessDenied."""
        self.authorise(self.authenticate(peer, command), peer, command, row, header)

    def authenticate(self, peer: Peer, command: Command) -> User | None:
        """Return the account that the request names. It becomes `peer.principal` if it signed the request."""
        fields, accounts = command.ext_fields(), self._files.current
        if peer.certificate is not None and ACCESS_KEY not in fields:
            peer.principal = account = accounts.by_certificate.get(peer.certificate)
            return account
        account = accounts.by_key.get(fields.get(ACCESS_KEY, ""))
        is_signed = account is not None and account.key.has_signed(fields, command.body)
        peer.principal = account if is_signed else None
        return account

    def authorise(self, account: User | None, peer: Peer, command: Command, row: Row, header: Request[Any]) -> None:
        """Do nothing if the account may do this, or the peer's address may. Raises: AccessDenied."""
        is_signed = account is not None and peer.principal is account
        if account is not None and is_signed and type(header) is SendMessageV2:
            topic = header.topic
            if account.may(topic, PUB) and not topic.startswith(RETRY):
                if self._lanes is not None and len(topic) <= MAX_TOPIC_LENGTH:
                    self._lanes.open_sender(account.access_key.encode(), topic.encode(), account.key.hmac)
                return
        source, white_addresses = peer.host[:-PORT_BYTES], self._files.current.addresses
        if white_addresses and _has(white_addresses, source):
            return
        if account is None:
            raise _unknown_account(command.ext_fields().get(ACCESS_KEY), peer.certificate)
        if not is_signed and not account.addresses.has(source):
            error = AccessDenied(f"Check signature failed for accessKey={account.access_key}")
            raise error.of_kind(DenialKind.WRONG_SIGNATURE)
        needs = permissions.needs(row, header, command.body, self._topic_at)
        permissions.check(account, row, needs, source)
        permissions.check_own_broker(account, row, header)

    def use_lanes(self, lanes: Lanes) -> None:
        """Let lanes take the sends of which this check needs the signature alone."""
        self._lanes = lanes


@lru_cache(_MAX_ADDRESSES)
def _has(addresses: Addresses, source: bytes) -> bool:
    return addresses.has(source)


def _unknown_account(access_key: str | None, certificate: str | None) -> AccessDenied:
    if access_key is None and certificate is not None:
        reason = f"No acl config for the certificate of {certificate}"
    else:
        reason = "No accessKey is configured" if access_key is None else f"No acl config for {access_key}"
    return AccessDenied(reason).of_kind(DenialKind.UNKNOWN_ACCOUNT)
