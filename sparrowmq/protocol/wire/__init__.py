"""What a connection carries: frames of commands, with typed headers and JSON bodies. `connection` puts it together."""
