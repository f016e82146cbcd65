"""`python -m sparrowmq` is the command `sparrowmq`."""

from sparrowmq.cli.scripts import sparrowmq

if __name__ == "__main__":
    sparrowmq()
