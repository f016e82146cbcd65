"""Settings of every program: typed fields, their kinds, and changes while a server runs."""
