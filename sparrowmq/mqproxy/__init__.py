"""`mqproxy`: the gRPC port of RocketMQ 5 as a process of its own, in front of a cluster of brokers."""
