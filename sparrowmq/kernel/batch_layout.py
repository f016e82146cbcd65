"""Numbers of batches.py that others need, too."""

from __future__ import annotations

from typing import Final

# Java has no limit, and its sample SplitBatchProducer sends 14,000 messages in 1 MB. A broker stores large batches in
# parts.
MAX_COUNT: Final = 32_768
HEAD_BYTES: Final = 20
PLACE_BYTES: Final = 32
TERM_BYTES: Final = 48

# Of gathering.py. As many ids are reserved as a batch usually needs. The counter returns to an id after 512
# reservations, and no producer makes so many batches in a millisecond.
RESERVED: Final = 128
MAX_PROPERTIES_BYTES: Final = 8192  # of a message that is gathered
OVERHEAD_BYTES: Final = 512  # memory of a waiting message besides its body
LONG_WAY: Final = 0  # what became of a message
NEEDS_IDS: Final = 1
ADDED: Final = 2
ATTEND: Final = 3
