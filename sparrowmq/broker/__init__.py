"""The broker: stores messages, delivers them, and keeps the progress of each consumer group."""
