"""The search for requests that cost a broker much CPU, or keep its event loop for long.

    genes.py     a request as a small tree, which can be grown and changed: a list of 40,000 groups is a number there
    rig.py       a broker in a process of its own, which measures each step of its event loop
    search.py    by request code, changes the most expensive requests so far, and keeps what costs more
    command.py   `./run fuzz --cost`

Limits: no step takes more than 5 ms of CPU. A request and its answer, of at least 4 KB together, take at most 1 us of
CPU per byte. A request breaks a limit only if it does so three times.
"""
