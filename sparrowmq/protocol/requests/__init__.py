"""Every request of the protocol: `table` lists them all; their headers and bodies are the modules beside it."""
