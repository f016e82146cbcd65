"""The settings of a client, as the port answers them: what the client sent, with what the cluster decides.

Source: GrpcClientSettingsManager, Java 5.4, and its answers.
"""

from __future__ import annotations

from typing import Any, Final

from sparrowmq.protocol.delay_levels import DelayLevels
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.group_settings import CLASSIC, ExponentialRetryPolicy

MAX_BODY_BYTES: Final = 4 << 20
SEND_ATTEMPTS: Final = 3
RECEIVE_BATCH: Final = 32
LONG_POLL_S: Final = 20
_BACKOFF_MIN_MS: Final = 10
_BACKOFF_MAX_MS: Final = 1000
_BACKOFF_FACTOR: Final = 2.0
_MILLION: Final = 1_000_000


def set_ms(duration: Any, milliseconds: int) -> None:
    duration.seconds, rest_ms = divmod(milliseconds, 1000)
    duration.nanos = rest_ms * _MILLION
    duration.SetInParent()


def ms_of(duration: Any) -> int:
    return int(duration.seconds) * 1000 + int(duration.nanos) // _MILLION


def complete_settings(settings: Any, group: GroupConfig | None) -> Any:
    """Complete the message `Settings` of a client, and return it. A group that does not exist (None) has defaults."""
    settings.metric.SetInParent()
    if settings.HasField("publishing"):
        settings.publishing.max_body_size = MAX_BODY_BYTES
        settings.publishing.validate_message_type = True
        policy = settings.backoff_policy
        policy.max_attempts = SEND_ATTEMPTS
        set_ms(policy.exponential_backoff.initial, _BACKOFF_MIN_MS)
        set_ms(policy.exponential_backoff.max, _BACKOFF_MAX_MS)
        policy.exponential_backoff.multiplier = _BACKOFF_FACTOR
    if settings.HasField("subscription"):
        _complete_consumer(settings, group or GroupConfig())
    return settings


def _complete_consumer(settings: Any, group: GroupConfig) -> None:
    subscription = settings.subscription
    subscription.fifo = bool(group.consume_message_orderly)
    subscription.receive_batch_size = RECEIVE_BATCH
    set_ms(subscription.long_polling_timeout, LONG_POLL_S * 1000)
    policy = settings.backoff_policy
    policy.max_attempts = group.retry_max_times + 1
    policy_settings = group.group_retry_policy or CLASSIC
    exponential, customized = (
        policy_settings.exponential_retry_policy or ExponentialRetryPolicy(),
        policy_settings.customized_retry_policy,
    )
    if policy_settings.type == "EXPONENTIAL":
        set_ms(policy.exponential_backoff.initial, exponential.initial)
        set_ms(policy.exponential_backoff.max, exponential.max)
        policy.exponential_backoff.multiplier = float(exponential.multiplier)
        return
    for step_ms in customized.next if customized is not None and customized.next else DelayLevels.parse().delays_ms:
        set_ms(policy.customized_backoff.next.add(), step_ms)
