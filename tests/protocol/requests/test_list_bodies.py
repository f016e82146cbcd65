"""Lists of topics and groups, as Java's tools 5.4.0 send them."""

from sparrowmq.protocol.requests.bodies import (
    GroupConfig,
    GroupConfigList,
    GroupTopicSubscription,
    TopicConfig,
    TopicConfigList,
)
from sparrowmq.protocol.subscription import Subscription


def test_lists_are_read() -> None:
    sent = b'{"topicConfigList":[{"attributes":{"+message.type":"FIFO"},"topicName":"T","perm":6}]}'
    assert TopicConfigList.decode(sent).topic_config_list == [TopicConfig("T", attributes={"+message.type": "FIFO"})]
    groups = GroupConfigList.decode(b'{"groupConfigList":[{"groupName":"g","retryMaxTimes":3}]}')
    assert groups.group_config_list == [GroupConfig("g", retry_max_times=3)]


def test_a_subscription_has_its_group_and_topic() -> None:
    answer = GroupTopicSubscription("g", "T", Subscription.build("T", "a"))
    assert GroupTopicSubscription.decode(answer.encode()) == answer
    assert GroupTopicSubscription("g", "T").encode() == b'{"group":"g","topic":"T"}'
