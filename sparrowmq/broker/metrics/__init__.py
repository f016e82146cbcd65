"""How a broker is doing, for Prometheus."""
