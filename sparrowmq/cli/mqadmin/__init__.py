"""`mqadmin`: Apache's admin tool, command by command, with its options, tables and streams.

Functions that ask a server raise `java.Failure`, the exception that Java's tool would print.
"""
