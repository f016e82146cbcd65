"""Access control by the settings of a broker: none, accounts in files, or plugged-in checks.

aclEnable=false     no guard: the dispatcher checks nothing
aclCheck=plain      auth/request_check.py with auth/account_files.py, which looks at the files every two seconds
aclCheck=...        auth/plugged.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.part import Chore, Part
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages import record
from sparrowmq.store.message_store import MessageStore

if TYPE_CHECKING:
    from sparrowmq.auth.account_files import AccountFiles
    from sparrowmq.auth.permissions import TopicAt
    from sparrowmq.auth.request_check import Check, Guard


class AccessControl:
    """The guard that a broker asks before it handles a request.

    Attributes:
        guard: None without access control.
        files: the account files, if the settings use them.
    Raises:
        ConfigError: there are no accounts, a file is broken, or a check cannot be loaded.
    """

    def __init__(self, settings: BrokerSettings, topic_at: TopicAt) -> None:
        self.guard: Guard | None = None
        self.files: AccountFiles | None = None
        if settings.acl:
            # A broker without access control loads nothing of auth/.
            from sparrowmq.auth.plugged import PLAIN
            from sparrowmq.auth.request_check import Guard

            names = [name.strip() for name in settings.acl_check.split(";") if name.strip()]
            if not names:
                raise ConfigError(f"aclEnable=true, but aclCheck is empty; write {PLAIN}, or leave it out")
            self.guard = Guard([self._check(name, settings, topic_at) for name in names])

    def part(self, *handlers: object) -> Part:
        """A part with the handlers, and with the periodic look at the account files."""
        if self.files is None:
            return Part(handlers)
        from sparrowmq.auth.account_files import LOOK_PERIOD_S

        return Part(handlers, (Chore("accounts", LOOK_PERIOD_S, self.files.look),))

    def _check(self, name: str, settings: BrokerSettings, topic_at: TopicAt) -> Check:
        from sparrowmq.auth.account_files import account_files
        from sparrowmq.auth.plugged import PLAIN, PluggedCheck, plugged_check
        from sparrowmq.auth.request_check import AccountCheck

        if name != PLAIN:
            return PluggedCheck(plugged_check(name, settings.as_properties()), topic_at)
        self.files = account_files(settings.home, settings.acl_file)
        return AccountCheck(self.files, topic_at)


def topics_of(store: MessageStore) -> TopicAt:
    """Return a function that finds the topic of the record at an offset of the log."""

    def topic_at(offset: int) -> str | None:
        view = store.record_at(offset)
        return None if view is None else record.decode(view, check_crc=False).topic

    return topic_at
