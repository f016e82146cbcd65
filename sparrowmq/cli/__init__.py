"""Commands: one file per noun. Each loads only what it needs, so that a server starts and a tool answers at once."""
