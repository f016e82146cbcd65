"""The identity of a message, which stays the same however often the message is sent and delivered.

    property once_id      the sender's own, such as an outbox's; the same after the sender has crashed and sends again
    UNIQ_KEY              the message id of a producer; the same in its retries, in each delivery and retry topic
    ORIGIN_MESSAGE_ID     of a retried message without UNIQ_KEY: the place where it was stored first
    the offset id         of a first delivery without UNIQ_KEY

Source: MessageClientIDSetter and SendMessageProcessor.consumerSendMsgBack, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final, TypeAlias

from sparrowmq.client.arguments import check_callable, check_text, is_coroutine_function, name_of
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import Property

ONCE_ID: Final = "once_id"

Key: TypeAlias = Callable[[ReceivedMessage], str]


def identity(message: ReceivedMessage) -> str:
    """Return the id by which duplicates of a message are recognised, see above. Raises: ConfigError, no message."""
    _check_message(message)
    own = message.properties.get(ONCE_ID) or message.stored.unique_key
    return own or message.properties.get(Property.ORIGIN_MESSAGE_ID) or message.offset_msg_id


def mark_of(message: ReceivedMessage, name: str, key: Key = identity) -> str:
    """Return the mark, 64 characters, that says `name` has handled the message. Raises: ConfigError, not a key."""
    _check_message(message)
    check_text("name", name, or_blank=False)
    if key is not identity:
        check_key(key)
    found: object = key(message)
    if not isinstance(found, str) or not found:
        raise ConfigError(f"the key of {message!r} is {shown(found)}; key= must return a text of a character or more")
    return sha256("\0".join((name, message.topic, found)).encode(errors="surrogatepass")).hexdigest()


def check_key(key: object) -> None:
    """Check a function that identifies messages. Raises: ConfigError, a call of it would return no text."""
    wanted = "a plain function of a message that returns the text by which it is recognised"
    check_callable("key", key, wanted, takes=1)
    if is_coroutine_function(key):
        raise ConfigError(f"key={name_of(key)} is asynchronous; give {wanted}")


def _check_message(message: object) -> None:
    if not isinstance(message, ReceivedMessage):
        raise ConfigError(f"{message!r} is no message of a consumer; give the one that the handler got")
