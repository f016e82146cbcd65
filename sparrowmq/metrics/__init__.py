"""The registry of figures, and its writers: Prometheus and OTLP. Status is in the broker."""
