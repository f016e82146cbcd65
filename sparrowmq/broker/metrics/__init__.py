"""The figures of a broker, and brokerStatus."""
