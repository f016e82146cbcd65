"""The interface of brokers: each of its implementations has every method."""

import inspect

from sparrowmq.grpc.brokers import Brokers, Cluster
from sparrowmq.mqproxy.account_brokers import AccountBrokers, AccountCluster
from sparrowmq.mqproxy.cluster_brokers import ClusterBrokers
from tests.grpc.scripted import ScriptedBrokers


def test_brokers_of_a_cluster_and_of_tests_have_the_methods_of_the_interface():
    for name in ("route", "topic", "group", "ask"):
        wanted = inspect.signature(getattr(Brokers, name)).parameters
        for kind in (AccountBrokers, ScriptedBrokers):
            assert list(inspect.signature(getattr(kind, name)).parameters) == list(wanted), (kind, name)
    for name in ("brokers_for", "left"):
        wanted = inspect.signature(getattr(Cluster, name)).parameters
        for cluster in (ClusterBrokers, AccountCluster, ScriptedBrokers):
            assert list(inspect.signature(getattr(cluster, name)).parameters) == list(wanted), (cluster, name)
