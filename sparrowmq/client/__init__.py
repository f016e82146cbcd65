"""The client: sends and consumes messages. Begin with client.py."""
