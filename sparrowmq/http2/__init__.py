"""A gRPC server over HTTP/2 (RFC 9113) that runs on the broker's event loop.

    socket ─ opening ─ session ─ connection ─ exchange ─ handler of a method
             TLS,      asyncio   frames,      one call    (calls.py)
             PROXY     only      windows,     and its
             header              streams      messages

`connection` and the modules below it do no I/O: bytes go in, calls of a `Receiver` and bytes come out. The kernel reads
header blocks. The answers' blocks are few and are written here.
"""
