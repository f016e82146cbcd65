"""Which version this is: `sparrowmq.__version__`, and what the distribution is built with."""

from typing import Final

VERSION: Final = "0.1.0"
