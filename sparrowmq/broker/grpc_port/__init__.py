"""The broker's own gRPC port: `port.py` opens it, and `local_link.py` connects its clients to the dispatcher."""
