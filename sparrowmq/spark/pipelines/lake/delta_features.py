"""Features of a Delta table that another program has turned on, and that this one cannot serve.

Files are read and committed as they are. With column mapping, columns have other names than those in files, so readers
see nulls in ours. With deletion vectors, files have rows that were deleted. With a constraint, readers rely on a check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deltalake.exceptions import DeltaError

from sparrowmq.errors import ConfigError

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from sparrowmq.spark.pipelines.lake.address import Address

_MAPPING: Final = "delta.columnMapping.mode"
_VECTORS: Final = "deletionVectors"
_CONSTRAINT: Final = "delta.constraints."
_UNSUPPORTED: Final = re.compile(r"Unsupported table features required: \[([^\]]*)\]")


def demand_writable(place: Path | Address | str, table: DeltaTable) -> None:
    """Raises: ConfigError, readers would lack values of new files, or rely on a check of them."""
    settings = table.metadata().configuration
    _demand_no_mapping(place, settings)
    names = sorted(each.removeprefix(_CONSTRAINT) for each in settings if each.startswith(_CONSTRAINT))
    if names:
        raise ConfigError(
            f"another program gave {place} the constraint {names[0]}, and new rows are not checked; drop it (ALTER "
            f"TABLE ... DROP CONSTRAINT {names[0]}), and choose rows in a query or a view"
        )


def demand_plain_files(place: Path | Address | str, table: DeltaTable) -> None:
    """Raises: ConfigError, the rows of the table are not all rows of its files, or not by their names."""
    _demand_no_mapping(place, table.metadata().configuration)
    if _VECTORS in (table.protocol().reader_features or ()):
        raise ConfigError(
            f"another program gave {place} deletion vectors, so its files may have rows that were deleted; take these "
            f"out (REORG TABLE ... APPLY (PURGE)), and then drop the feature (ALTER TABLE ... DROP FEATURE {_VECTORS})"
        )


def _demand_no_mapping(place: Path | Address | str, settings: Mapping[str, str | None]) -> None:
    if (settings.get(_MAPPING) or "none") != "none":
        raise ConfigError(
            f"another program gave {place} column mapping, so columns may have other names than those in files; let "
            f"it set {_MAPPING} to none again, or begin a new table at another place"
        )


@contextmanager
def features_named(place: Path | Address) -> Iterator[None]:
    """Raises: ConfigError, the table has features that deltalake does not know."""
    try:
        yield
    except DeltaError as error:
        if (found := _UNSUPPORTED.search(str(error))) is None:
            raise
        raise ConfigError(
            f"another program gave {place} features that cannot be written here: {found[1]}; drop them (ALTER TABLE "
            "... DROP FEATURE), or begin a new table at another place"
        ) from error
