"""The bodies of requests that tools of 5.x send: many topics or groups at once, and the subscription of a group.

Names of attributes have their sign in these lists, as in a single request: {"+message.type": "FIFO"}.
Source: CreateTopicListRequestBody, SubscriptionGroupList and QuerySubscriptionResponseBody, Java 5.4.0.
"""

# ruff: noqa: RUF012 - msgspec gives each body its own empty list

from __future__ import annotations

from sparrowmq.protocol.requests.bodies import GroupConfig, TopicConfig
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.protocol.wire.body import Body


class TopicConfigList(Body):
    """Topics to create or change."""

    topic_config_list: list[TopicConfig] = []


class GroupConfigList(Body):
    """Groups to create or change. (Java: SubscriptionGroupList)"""

    group_config_list: list[GroupConfig] = []


class GroupTopicSubscription(Body):
    """The subscription of a group to a topic; None if no member is online or subscribes to the topic."""

    group: str = ""
    topic: str = ""
    subscription_data: Subscription | None = None
