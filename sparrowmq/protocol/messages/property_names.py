"""The names of properties with a meaning in RocketMQ, and those among them that an application may set.

Source: MessageConst, Java 4.9.8 and 5.3.
"""

from __future__ import annotations

from typing import Final

LONGEST_REASON: Final = 1000  # characters of REJECT_REASON


class Property:
    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    WAIT: Final = "WAIT"
    DELAY: Final = "DELAY"
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QID: Final = "REAL_QID"
    TRAN_MSG: Final = "TRAN_MSG"
    PGROUP: Final = "PGROUP"
    MIN_OFFSET: Final = "MIN_OFFSET"
    MAX_OFFSET: Final = "MAX_OFFSET"
    BUYER_ID: Final = "BUYER_ID"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    TRANSFER_FLAG: Final = "TRANSFER_FLAG"
    CORRECTION_FLAG: Final = "CORRECTION_FLAG"
    MQ2_FLAG: Final = "MQ2_FLAG"
    RECONSUME_TIME: Final = "RECONSUME_TIME"
    MSG_REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    UNIQ_KEY: Final = "UNIQ_KEY"
    EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
    MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    CONSUME_START_TIME: Final = "CONSUME_START_TIME"
    TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_ID: Final = "__transactionId__"
    TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    TRAN_OWNER: Final = "TRAN_OWNER"  # ours: the account that sent the half message
    CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    INSTANCE_ID: Final = "INSTANCE_ID"
    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    TTL: Final = "TTL"
    ARRIVE_TIME: Final = "ARRIVE_TIME"
    PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
    CLUSTER: Final = "CLUSTER"
    MSG_TYPE: Final = "MSG_TYPE"
    POP_CK: Final = "POP_CK"
    POP_CK_OFFSET: Final = "POP_CK_OFFSET"
    FIRST_POP_TIME: Final = "1ST_POP_TIME"
    SHARDING_KEY: Final = "__SHARDINGKEY"
    PRIORITY: Final = "_SYS_MSG_PRIORITY_"
    FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
    REDIRECT: Final = "REDIRECT"
    INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
    INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
    TRACE_CONTEXT: Final = "TRACE_CONTEXT"
    TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
    TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
    TIMER_OWNER: Final = "TIMER_OWNER"  # ours: the account that sent a message for a time, or recalled one
    BORN_HOST: Final = "__BORNHOST"
    BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
    CRC32: Final = "__CRC32#"
    REJECT_REASON: Final = "REJECT_REASON"  # ours: why a consumer made it a dead letter
    DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"


# A sender asks for a later delivery by these.
DELAYS: Final = (
    Property.DELAY,
    Property.TIMER_DELAY_SEC,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELIVER_MS,
)
# A broker notes by these how a message for a time waits, and how a message was popped.
TIMER_NOTES: Final = (
    Property.TIMER_OUT_MS,
    Property.TIMER_ENQUEUE_MS,
    Property.TIMER_DEQUEUE_MS,
    Property.TIMER_ROLL_TIMES,
    Property.TIMER_OWNER,
)
POP_NOTES: Final = (Property.POP_CK, Property.POP_CK_OFFSET, Property.FIRST_POP_TIME)
# An application may set these: they control its own message, or its own routing.
OPEN = frozenset(
    {
        Property.BUYER_ID,
        Property.INSTANCE_ID,
        Property.CHECK_IMMUNITY_TIME_IN_SECONDS,
        Property.CORRELATION_ID,
        Property.REPLY_TO_CLIENT,
        Property.TTL,
        Property.MSG_TYPE,
        Property.SHARDING_KEY,
        Property.PRIORITY,
        Property.TIMER_DELAY_SEC,
        Property.TIMER_DELAY_MS,
        Property.TIMER_DELIVER_MS,
        Property.INNER_MULTI_DISPATCH,
        Property.TRACE_CONTEXT,
        Property.MAX_RECONSUME_TIMES,
    }
)
RESERVED = frozenset(value for name, value in vars(Property).items() if name.isupper()) - OPEN
