"""Tables for the rows of pipelines: Parquet files, under three kinds of book-keeping.

Each takes over the files of a batch at once, under the batch's number, and knows its last batch: so a
batch that Spark repeats after a crash is there once.
"""
