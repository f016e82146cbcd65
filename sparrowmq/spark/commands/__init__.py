"""The commands of `sparrowmq pipeline`, one file for each kind of them."""
