"""The client under stress: members and brokers come, go and die, and a ledger tells what became of each message.

plan        what happens when, from a seed
rig         does it: nodes (brokers, name servers), members and a producer, each a process
hasty       the clock of the clients: what they do rarely, they do often here
ledger      what all of them wrote down, line by line
checker     what of it breaks a promise; pure, like the plan and the ledger
settling    checks what is over and forgets it, for runs of hours
memory      how much the processes grow
"""
