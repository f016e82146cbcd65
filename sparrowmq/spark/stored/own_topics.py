"""Topics that brokers make for themselves, as far as a store can tell them from those of users.

A broker makes topics of its own name, of its cluster's, and `CLUSTER_REPLY_TOPIC` for replies. No file of a store has
these names, but its list of topics has the one for replies, and so the name of the cluster.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from sparrowmq.protocol.names import REPLY_SUFFIX

_LIST: Final = os.path.join("config", "topics.json")


class _Topics(msgspec.Struct):
    topic_config_table: Mapping[str, msgspec.Raw] = msgspec.field(name="topicConfigTable")


def clusters_of(log_file: str) -> frozenset[str]:
    """The names of clusters in the list of topics beside a log; none where there is no list, as beside a copied log."""
    store = os.path.dirname(os.path.dirname(log_file))
    try:
        with open(os.path.join(store, _LIST), "rb") as file:
            topics = msgspec.json.decode(file.read(), type=_Topics).topic_config_table
    except (OSError, msgspec.MsgspecError):
        return frozenset()
    return frozenset(name.removesuffix(REPLY_SUFFIX) for name in topics if name.endswith(REPLY_SUFFIX))
