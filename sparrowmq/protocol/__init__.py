"""The protocol that all peers share, byte for byte: pure functions without I/O, clock or logging."""
