"""Pop consumption: brokers choose the messages of each consumer, and each message is acknowledged by itself."""
