"""Where the rows of a pipeline go: tables of Parquet files, under three kinds of book-keeping.

Each takes over the files of a batch at once, under the batch's number, and can tell which batch was the last: so a
batch that Spark repeats after a crash is there once.
"""
