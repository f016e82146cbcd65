"""Attacks on access control: nothing of others may be read, written or decided.

    victim.py    an account with topics, groups, offsets, open transactions, staged batches, locks, delayed and timed
                 messages, and a request that waits for its answer
    judge.py     sees whether all of that is as the victim left it
    attacks.py   any request code by any identity, aimed at one of these things, from a seed
    popped.py    a message that the victim has popped, and is working on
    wire.py      a connection that sends any fields, signed or not
    play.py      a broker, the victim, its attackers, and the search for the fewest requests that do harm
    grpc_*.py    the same for calls of the gRPC port
    command.py   `./run fuzz --access`

A fault is one of these: an attacker heard the victim's marker; a topic of the victim has a message of another, lacks
one, or has one twice; its offsets, groups, topics or accounts changed; its lock is free; its transaction, batch or
answer does not end as the victim says.
"""
