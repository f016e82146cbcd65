"""Does the broker keep its promises when it is killed? `./run crash --rounds N` asks for as long as you like."""
