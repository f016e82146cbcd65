"""Tables that are not in a folder of this machine: on S3, or on any other file system that pyarrow knows.

    s3://bucket/orders            the table, written by Spark's workers through pyarrow
    s3://bucket/orders.errors     its errors
    /var/lib/orders               the state, with Spark's checkpoint: on this machine, or mounted here

Keys for S3 come from where each AWS program has them: the environment, `~/.aws`, the role of the machine.
`AWS_ENDPOINT_URL` names another S3 than Amazon's. Arrow, deltalake and pyiceberg get the same endpoint and region from
here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow.parquet as pq
from pyarrow import fs

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.running.folders import local_path, scheme_of

SCHEMES: Final = ("s3", "gs", "abfs", "abfss", "hdfs", "viewfs", "file")
_SCHEMES_WITH_FOLDERS: Final = ("hdfs", "viewfs", "file")
_ADDRESS: Final = re.compile(r"[A-Za-z0-9+.-]+://")
_DEFAULT_REGION: Final = "us-east-1"
_CONNECT_TIMEOUT_S: Final = 5
_REQUEST_TIMEOUT_S: Final = 30


@dataclass(frozen=True, slots=True)
class Catalog:
    """An Iceberg catalog by its name for pyiceberg, the table's name there, as `orders.paid`, and properties."""

    name: str
    table: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not all(self.table.split(".")) or "." not in self.table:
            raise ConfigError(f"{self.table!r} is not the name of a table in a catalog; write NAMESPACE.TABLE")

    def __str__(self) -> str:
        return f"{self.name}:{self.table}"


@dataclass(frozen=True)
class Address:
    """The address of a table, used as a path would be; without a `catalog`, Iceberg has one in the state."""

    url: str
    state: Path
    catalog: Catalog | None = None

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Address:
        return replace(self, url=f"{self.url}/{name}")

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def description(self) -> str:
        """The table and its catalog as errors name them."""
        return self.url if self.catalog is None else f"{self.url} or its catalog {self.catalog.name}"

    @property
    def folder(self) -> Path | None:
        """The folder of this machine that a `file:` address means; None for other stores."""
        return Path(url2pathname(urlsplit(self.url).path)) if scheme_of(self.url) == "file" else None

    def with_name(self, name: str) -> Address:
        """Return the address beside this one. A table in a catalog gets the same ending in its name."""
        ending = name.removeprefix(self.name)
        catalog = self.catalog
        if catalog is not None:
            catalog = replace(catalog, table=f"{catalog.table}{ending.replace('.', '_')}")
        return replace(self, url=f"{self.url.rpartition('/')[0]}/{name}", catalog=catalog)

    @property
    def storage(self) -> Storage:
        """The files of the table, without its state and catalog; workers get this part."""
        return Storage(self.url, s3_settings(os.environ) if self.url.startswith("s3:") else {})


@dataclass(frozen=True)
class Storage:
    """The folder behind an address. `settings` are the endpoint and region of S3; keys are never in it."""

    url: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[Storage], tuple[str, dict[str, str]]]:
        """Leave out the open file system, because it has keys."""
        return Storage, (self.url, dict(self.settings))

    @cached_property
    def _filesystem(self) -> tuple[fs.FileSystem, str]:
        if self.url.startswith("s3:"):
            parts = urlsplit(self.url)
            return _s3_filesystem(self.settings), f"{parts.netloc}{parts.path}"
        opened: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(self.url)
        return opened

    @property
    def files(self) -> fs.FileSystem:
        return self._filesystem[0]

    def path(self, name: str = "") -> str:
        """Return the path of a file in the folder, for `files`."""
        return f"{self._filesystem[1]}/{name}" if name else self._filesystem[1]

    def read(self, name: str) -> bytes | None:
        try:
            with self.files.open_input_stream(self.path(name)) as file:
                content: bytes = file.read()
                return content
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a small file, all of it or nothing."""
        self.make_folder(name)
        temporary = f"{name}.tmp" if self.url.startswith("file:") else name
        with self.files.open_output_stream(self.path(temporary)) as file:
            file.write(content)
        if temporary != name:
            self.files.move(self.path(temporary), self.path(name))

    def upload(self, local: str, name: str) -> None:
        """Copy a file of this machine, in memory that does not grow with it."""
        self.make_folder(name)
        fs.copy_files(local, self.path(name), fs.LocalFileSystem(), self.files, use_threads=False)

    def list(self, folder: str = "", *, deep: bool = True) -> list[fs.FileInfo]:
        """Return the files in a folder; none if the folder does not exist."""
        selector = fs.FileSelector(self.path(folder), recursive=deep, allow_not_found=True)
        return [info for info in self.files.get_file_info(selector) if info.type == fs.FileType.File]

    def relative(self, path: str) -> str:
        return str(PurePosixPath(path).relative_to(self.path()))

    def delete(self, name: str) -> None:
        """Remove a file if it exists."""
        try:
            self.files.delete_file(self.path(name))
        except FileNotFoundError:
            return

    def clear(self) -> None:
        self.files.delete_dir_contents(self.path(), missing_dir_ok=True)

    def make_folder(self, name: str) -> None:
        """Make the folder of a file, where the file system has folders."""
        if urlsplit(self.url).scheme in _SCHEMES_WITH_FOLDERS:
            self.files.create_dir(self.path(name).rpartition("/")[0], recursive=True)

    def check_bucket(self) -> None:
        """Raises: ConfigError, the bucket does not exist."""
        bucket = urlsplit(self.url).netloc
        if self.url.startswith("s3:") and self.files.get_file_info(bucket).type == fs.FileType.NotFound:
            raise ConfigError(
                f"{self.url}: there is no bucket {bucket} at {self.settings.get('endpoint', 'Amazon S3')}; make it, "
                "or correct its name, or AWS_ENDPOINT_URL and AWS_REGION"
            )


def read_footer(folder: Path | Address, name: str) -> pq.FileMetaData:
    if isinstance(folder, Path):
        return pq.read_metadata(folder / name)
    storage = folder.storage
    return pq.read_metadata(storage.path(name), filesystem=storage.files)


def table_root(target: str | Path, state: str | Path | None = None, catalog: Catalog | None = None) -> Path | Address:
    """The place of a table: a folder beside its state, or an address. Raises: ConfigError, `state` is missing."""
    scheme = scheme_of(target)
    if scheme is None and state is None and catalog is None:
        return local_path(target)
    if scheme is None:
        root = local_path(target)
        state_folder = root.with_name(f"{root.name}.state") if state is None else local_path(state)
        return _check_state_outside(Address(root.as_uri(), state_folder, catalog))
    if scheme not in SCHEMES:
        raise ConfigError(
            f"{target} has the scheme {scheme}; tables can be at {', '.join(f'{name}:' for name in SCHEMES)}"
        )
    if state is None:
        raise ConfigError(
            f"{target} is no folder of this machine, and Spark's checkpoint must be in one; name it (state, --state)"
        )
    url = str(target).rstrip("/")
    if not _ADDRESS.match(url):
        raise ConfigError(
            f"{target} has lost a slash, as a pathlib.Path has no addresses; give it as text, {scheme}://..."
        )
    if not urlsplit(url).path.strip("/"):
        raise ConfigError(f"{target} is no address of a table; write one with a path, such as {url}/orders")
    return _check_state_outside(Address(url, local_path(state), catalog))


def _check_state_outside(root: Address) -> Address:
    """Raises: ConfigError, the state is in the table, where a merge would remove its files."""
    if root.folder is not None and root.state.is_relative_to(root.folder):
        raise ConfigError(f"the state {root.state} is inside of the table {root}; name a folder beside it")
    return root


def storage_options(url: str) -> dict[str, str] | None:
    """Return the options that deltalake does not read from the environment itself."""
    if not url.startswith("s3:"):
        return None
    settings = s3_settings(os.environ)
    options = {"region": settings["region"]} if "region" in settings else {}
    if endpoint := settings.get("endpoint"):
        options |= {"endpoint_url": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    return options


def file_io_properties(url: str) -> dict[str, str]:
    if not url.startswith("s3:"):
        return {}
    settings = s3_settings(os.environ)
    timeouts = {"s3.connect-timeout": str(_CONNECT_TIMEOUT_S), "s3.request-timeout": str(_REQUEST_TIMEOUT_S)}
    return {f"s3.{name}": value for name, value in settings.items()} | timeouts


def s3_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the endpoint and region of S3 from the environment; the result has no secrets."""
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if endpoint and not region:  # Only Amazon can be asked for the region of a bucket.
        region = _DEFAULT_REGION
    settings = {"endpoint": endpoint, "region": region}
    return {name: value for name, value in settings.items() if value}


def _s3_filesystem(settings: Mapping[str, str]) -> fs.S3FileSystem:
    return fs.S3FileSystem(
        endpoint_override=settings.get("endpoint"),
        region=settings.get("region"),
        connect_timeout=_CONNECT_TIMEOUT_S,
        request_timeout=_REQUEST_TIMEOUT_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=3),
    )
