"""Effects that happen once, although brokers deliver messages at least once.

    producer    outbox: the message is a row in your own transaction, a relay sends it        sql, in_django
    consumer    @idempotent(store): a mark for each message whose effect has happened        sql, redis, in_django

A mark and an effect in one transaction are an inbox: both happen, or none. `identity` is the id of a message.
"""

from sparrowmq.once.idempotent import ONCE_ID as ONCE_ID
from sparrowmq.once.idempotent import idempotent as idempotent
from sparrowmq.once.idempotent import identity as identity
