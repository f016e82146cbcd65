"""Repeated sends: a message that a producer sends again, because it got no answer, is stored once."""
