"""The peer of blocking clients, with options that lead to it."""

from sparrowmq.spark.options import SinkOptions, SourceOptions, parse
from tests import peer
from tests.peer import BROKER, HangUp, Refuse, Silence

__all__ = ["BROKER", "HangUp", "Peer", "Refuse", "Silence"]


class Peer(peer.Peer):
    def source(self, **options):
        given = {"nameServer": self.address, "retryIntervalMs": "1"} | options
        return parse(SourceOptions, {name: value for name, value in given.items() if value is not None})

    def sink(self, **options):
        return parse(SinkOptions, {"nameServer": self.address, "retryIntervalMs": "1"} | options)
