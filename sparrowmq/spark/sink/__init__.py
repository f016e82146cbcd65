"""The writing side of the Spark sink: rows become messages, and each is stored."""
