"""Does the broker keep its promises when it is killed, or the power is cut? `./run chaos kill` asks for long."""
