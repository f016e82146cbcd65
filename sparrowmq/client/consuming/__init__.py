"""Consuming: from a queue to who handles its messages to the committed offset. Begin with consumer.py."""
