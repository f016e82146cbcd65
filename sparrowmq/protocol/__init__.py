"""What every peer must agree on, byte for byte: pure functions, no I/O, no clock, no logging."""
