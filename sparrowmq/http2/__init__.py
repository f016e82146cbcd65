"""A gRPC server over HTTP/2 (RFC 9113) that runs on the broker's event loop.

    socket ─ opening ─ session ─ kernel ────── exchange ─ handler of a method
             TLS,      asyncio   http2.py:     one call    (calls.py)
             PROXY     only      frames,
             header              windows,
                                 messages

The kernel does no I/O: bytes go in, calls and bytes come out.
"""
