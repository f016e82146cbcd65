"""Sending: from a message to the broker that confirms it. Begin with producer.py."""
