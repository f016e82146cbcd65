"""Copies of messages from topics and tables to topics, in order, and none twice."""
