"""The Python clients that `bench peers` compares: a module each, run in a process of its own.

A module imports its client and the standard library, and nothing else of this project: it runs in an environment that
has the clients of the peers and not ours. Its `WAYS` maps the names of bench/clients/task.py to functions of a
Task. Each way is the one that the client's own documents advise for throughput, and settles every message: a send
that is not acknowledged, or a body that is not there, ends it with an error.
"""
