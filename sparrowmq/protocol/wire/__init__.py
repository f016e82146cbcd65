"""The bytes of a connection: frames of commands, with typed headers and JSON bodies. Start with `connection`."""
