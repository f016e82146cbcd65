"""Numbers of batches.py that others need, too."""

from __future__ import annotations

from typing import Final

# Java has no limit, and its sample SplitBatchProducer sends 14,000 messages in 1 MB. A broker stores large batches in
# parts.
MAX_COUNT: Final = 32_768
HEAD_BYTES: Final = 20
PLACE_BYTES: Final = 32
TERM_BYTES: Final = 48
