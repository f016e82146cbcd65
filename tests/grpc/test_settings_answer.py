"""The settings that a port answers. The values are those of Apache 5.4.0."""

from sparrowmq.grpc.client_settings import complete_settings, ms_of, set_ms
from sparrowmq.grpc.wire_types import ClientType, message_class
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.group_settings import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
)


def test_producer_learns_attempts_and_the_largest_body():
    sent = message_class("Settings")(client_type=ClientType.PRODUCER)
    sent.publishing.topics.add(name="orders")
    got = complete_settings(sent, None)
    assert got.publishing.max_body_size == 4 << 20
    assert got.publishing.validate_message_type
    assert got.backoff_policy.max_attempts == 3
    assert ms_of(got.backoff_policy.exponential_backoff.max) == 1000
    assert got.HasField("metric")


def consumer():
    sent = message_class("Settings")(client_type=ClientType.PUSH_CONSUMER)
    sent.subscription.group.name = "g"
    return sent


def test_consumer_of_an_unknown_group_gets_the_usual_steps():
    got = complete_settings(consumer(), None)
    steps = [ms_of(step) for step in got.backoff_policy.customized_backoff.next]
    assert (len(steps), steps[0], steps[-1]) == (18, 1000, 7_200_000)
    assert got.backoff_policy.max_attempts == 17
    assert not got.subscription.fifo
    assert got.subscription.receive_batch_size == 32
    assert ms_of(got.subscription.long_polling_timeout) == 20_000


def test_consumer_gets_the_policy_of_its_group():
    growing = ExponentialRetryPolicy(initial=2000, max=9000, multiplier=3)
    policy = GroupRetryPolicy("EXPONENTIAL", exponential_retry_policy=growing)
    group = GroupConfig("g", consume_message_orderly=True, retry_max_times=2, group_retry_policy=policy)
    got = complete_settings(consumer(), group)
    backoff = got.backoff_policy.exponential_backoff
    assert (ms_of(backoff.initial), ms_of(backoff.max), backoff.multiplier) == (2000, 9000, 3)
    assert got.backoff_policy.max_attempts == 3
    assert got.subscription.fifo


def test_consumer_gets_the_steps_of_its_group():
    policy = GroupRetryPolicy("CUSTOMIZED", customized_retry_policy=CustomizedRetryPolicy(next=[10, 20]))
    got = complete_settings(consumer(), GroupConfig("g", group_retry_policy=policy))
    assert [ms_of(step) for step in got.backoff_policy.customized_backoff.next] == [10, 20]


def test_time_is_kept_to_the_millisecond():
    duration = message_class("ReceiveMessageRequest")().invisible_duration
    set_ms(duration, 12_345)
    assert (duration.seconds, duration.nanos, ms_of(duration)) == (12, 345_000_000, 12_345)
