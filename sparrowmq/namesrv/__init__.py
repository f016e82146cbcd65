"""The name server: it knows which broker has which topic. Only its KV is on disk: brokers register every 30 s."""
