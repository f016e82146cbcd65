"""What a short Spark program that somebody else wrote is started with, so that it is over soon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# The second compiler, the pages of a browser and 200 parts of what has three rows are for longer ones.
QUICK: Final[Mapping[str, str]] = {
    "PYSPARK_SUBMIT_ARGS": "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'"
    " --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2 pyspark-shell"
}
