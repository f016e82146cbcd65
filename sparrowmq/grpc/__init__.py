"""The gRPC protocol of RocketMQ 5: `port.py` has the calls of its clients, each made of requests to brokers."""
