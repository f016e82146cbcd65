"""Catalogs for Iceberg tables: one in the table's state, or any that pyiceberg knows, such as REST, SQL and Glue.

A catalog is named as in pyiceberg's own configuration, which has its address and keys: `~/.pyiceberg.yaml`, or
variables such as `PYICEBERG_CATALOG__PROD__URI`. Options that a run gives come before it. A name without any
configuration is an error, so a slip in it makes no table elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.spark.pipelines.lake.address import Address, Catalog, file_io_properties
from sparrowmq.spark.pipelines.lake.retry_policy import mask_secrets, secret_values

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as Opened

_CUT_CHARACTERS: Final = re.compile("[#?]")
NAMESPACE: Final = "sparrowmq"


def table_identifier(path: Path | Address) -> tuple[str, ...]:
    catalog = path.catalog if isinstance(path, Address) else None
    return (NAMESPACE, path.name) if catalog is None else tuple(catalog.table.split("."))


def iceberg_location(path: Path | Address) -> str:
    """Return the location of a table as Iceberg writes it; pyiceberg decodes nothing, so a folder is a plain path."""
    folder = path.folder if isinstance(path, Address) else path
    return f"file://{folder}" if folder is not None else str(path)


def check_location(location: str, path: Path | Address) -> None:
    """Raises: ConfigError, the catalog has the table at another location."""
    if isinstance(path, Address) and location.rstrip("/") != iceberg_location(path):
        raise ConfigError(
            f"the catalog has {'.'.join(table_identifier(path))} at {location}, and not at {path}; "
            "give that address (--to), or another name (--table)"
        )


def open_catalog(path: Path | Address, state: Path) -> Opened:
    """Open the catalog of a table. Raises: ConfigError, it is not configured, lacks a package, or the path is bad."""
    location = iceberg_location(path)
    if cut := _CUT_CHARACTERS.search(location):
        raise ConfigError(
            f"{path}: an Iceberg table cannot be at a place with {cut[0]} in its name, as pyiceberg leaves out what "
            "follows; name another one, or choose another format"
        )
    files = file_io_properties(location)
    catalog = path.catalog if isinstance(path, Address) else None
    if catalog is not None:
        return _load_configured(catalog, files)
    from sqlalchemy import URL

    from sparrowmq.spark.pipelines.lake.iceberg_metadata import OrderedCatalog  # needs pyiceberg

    state.mkdir(parents=True, exist_ok=True)
    warehouse = location.rpartition("/")[0]
    database = URL.create("sqlite", database=str(state / "catalog.db"))  # it quotes what SQLAlchemy unquotes
    return without_pool(OrderedCatalog(NAMESPACE, uri=database.render_as_string(), warehouse=warehouse, **files))


@contextmanager
def explain_catalog_errors(path: Path | Address, state: Path) -> Iterator[None]:
    """Raises: BadStore, instead of a database error, if the catalog in the state is damaged, or was removed."""
    from sqlalchemy.exc import DatabaseError, OperationalError

    try:
        yield
    except DatabaseError as error:
        if isinstance(path, Address) and path.catalog is not None:
            raise
        text = str(error.orig)
        # Others pass, such as a full disk. SQLite makes a file that was removed again, without tables.
        if isinstance(error, OperationalError) and "readonly" not in text and "no such table" not in text:
            raise
        if isinstance(path, Address):
            remedy = "restore it from a backup"
        else:
            remedy = "remove it if it is there, and start again: it is made from the metadata of the table"
        raise BadStore(
            f"{state / 'catalog.db'}, the catalog of {path}, is damaged, was removed meanwhile, or cannot be written "
            f"({text}); {remedy}"
        ) from None


def catalog_secrets(path: Path | Address) -> list[str]:
    """Return the secrets that no text about a table may show."""
    catalog = path.catalog if isinstance(path, Address) else None
    return secret_values({} if catalog is None else _configuration(catalog))


def _configuration(catalog: Catalog) -> dict[str, str]:
    from pyiceberg.utils.config import Config

    return {**(Config().get_catalog_config(catalog.name) or {}), **catalog.options}  # type: ignore[dict-item]


def without_pool(catalog: Opened) -> Opened:
    """Return a catalog that closes its connections after each use: an open one fails after the database's restart."""
    if hasattr(catalog, "engine"):
        from sqlalchemy import NullPool, create_engine

        pooled, catalog.engine = catalog.engine, create_engine(catalog.engine.url, poolclass=NullPool)
        pooled.dispose()
    return catalog


def _load_configured(catalog: Catalog, files: Mapping[str, str]) -> Opened:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NotInstalledError

    from sparrowmq.spark.pipelines.lake.iceberg_metadata import order_commit_times

    configuration = _configuration(catalog)
    if not configuration:
        variable = f"PYICEBERG_CATALOG__{catalog.name.upper()}__URI"
        raise ConfigError(
            f"the catalog {catalog.name} is not configured; give it in ~/.pyiceberg.yaml, by {variable}, or as "
            "options type and uri (--catalog-option, catalog_options of a lake)"
        )
    # Glue gets the region too: boto3 does not read AWS_REGION, as all else here does.
    region = {"client.region": files["s3.region"]} if "s3.region" in files else {}
    try:
        return order_commit_times(without_pool(load_catalog(catalog.name, **{**files, **region, **configuration})))
    except (NotInstalledError, ImportError) as error:
        raise ConfigError(
            f"the catalog {catalog.name} needs a package: {error.__cause__ or error}; install it as "
            "docs/use/remote-tables.md says for this type"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        reason = mask_secrets(str(error).partition(":")[0], secret_values(configuration))
        raise ConfigError(
            f"the catalog {catalog.name} cannot be opened: {reason}; give at least its type and uri"
        ) from None
