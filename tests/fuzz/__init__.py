"""Nonsense, seeded: for every request of the table on live servers, and for every decoder.

nonsense.py   values, texts and bytes that are wrong in the ways that wrong things are
frames.py     requests of the table, well formed, spoiled or garbage
live.py       sends them to a server and sees that it answers, lives, and does not grow
decoders.py   every function that reads what a stranger wrote, and what may leave it
access/       `./run fuzz --access`: attacks on what belongs to others
cost/         `./run fuzz --cost`: the search for requests that cost much CPU
__main__.py   `./run fuzz`
"""
