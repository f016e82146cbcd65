"""The name server: which broker has which topic. It keeps only the KV; the rest brokers tell it every 30 s."""
