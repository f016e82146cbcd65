"""The remoting port of `mqproxy`: clients of the remoting protocol reach all brokers of a cluster through it."""
