"""The commands `sparrowmq pipeline`, `lake` and `spark`."""
