"""`python -m sparrowmq` is the command `sparrowmq`."""

from sparrowmq.cli.main import main

if __name__ == "__main__":
    main(prog_name="sparrowmq")
