"""Transactions: half messages, their records, and which transactions are open."""
