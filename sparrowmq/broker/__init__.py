"""The broker: keeps messages, hands them out, and knows who consumes what how far."""
