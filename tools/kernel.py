"""Build the compiled form of sparrowmq/kernel/, if its sources have changed: `python -m tools.kernel`.

It takes some seconds, and needs a C compiler and Python's headers. The package ziglang is a compiler, too: `./run` and
the build of a wheel (hatch_build.py) install it where there is no other. Without them the sources run as they are, and
it says so. `./run` calls it before each verb, and the build of a wheel does.

    python -m tools.kernel --sanitize FOLDER    build it into FOLDER with AddressSanitizer and UBSan, for tests
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

_WANTED: Final = os.environ.pop("SPARROWMQ_KERNEL", None)  # to be built, it need not be there
from sparrowmq import kernel  # noqa: E402

if _WANTED is not None:
    os.environ[kernel.VARIABLE] = _WANTED

# `annotation_typing`: the types of C stand in the .pxd files alone.
DIRECTIVES: Final = {"language_level": 3, "cdivision": True, "nonecheck": True, "annotation_typing": False}
FLAGS: Final = ("-O2", "-g0", "-w", "-fvisibility=hidden")
SANITIZED: Final = ("-O0", "-g", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
ZIG: Final = "ziglang"  # Clang with all that it needs, as a package for Python
COVERED: Final = "-fsanitize-coverage=trace-pc"  # of gcc; the calls are for tests/kernel/coverage.c
PLAIN: Final = "the kernel runs as plain Python, a tenth as fast"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sanitize", metavar="FOLDER")
    parser.add_argument("--cover", action="store_true", help="with --sanitize: call out in each block of code")
    parser.add_argument("--packages", action="store_true", help="show the packages that building it needs besides")
    options = parser.parse_args(arguments)
    if options.packages:
        print(*packages())
    elif options.sanitize:
        Path(options.sanitize).mkdir(parents=True, exist_ok=True)
        build(Path(options.sanitize), (*SANITIZED, COVERED) if options.cover else SANITIZED)
    elif not kernel.is_built() and (problem := try_to_build()) is not None:
        print(f"{PLAIN}: {problem}", file=sys.stderr)
    return 0


def try_to_build() -> str | None:
    """Build it in its place. Returns why it could not be built."""
    if (missing := what_is_missing()) is not None:
        return missing
    folder = Path(kernel.COMPILED)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another `./run` may build it now
            if not kernel.is_built():
                build(folder, FLAGS)
    except ImportError as error:
        return f"{error.name or error} is not installed here"
    except PermissionError as error:
        return f"{error.filename} cannot be written"
    except (Exception, SystemExit) as error:
        return f"compiling failed ({error}); please tell us"
    return None


def what_is_missing() -> str | None:
    """What a compiler lacks here."""
    if not has_headers():
        return "Python's headers are not installed (Debian, Ubuntu: python3-dev)"
    if compiler() is None:
        return f"there is no C compiler {_own_compiler()} (Debian, Ubuntu: gcc; elsewhere the Python package {ZIG})"
    return None


def packages() -> list[str]:
    """The packages that a build needs here besides: a C compiler, if there is none. That of CC is not replaced."""
    return [ZIG] if has_headers() and "CC" not in os.environ and shutil.which(_own_compiler()) is None else []


def has_headers() -> bool:
    return Path(sysconfig.get_paths()["include"], "Python.h").is_file()


def compiler() -> str | None:
    """The command of the C compiler: this Python's own, else that of the package ziglang. None without both."""
    if shutil.which(_own_compiler()) is not None:
        return os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if packages() and importlib.util.find_spec(ZIG) is not None:
        return f"{shlex.quote(sys.executable)} -m {ZIG} cc"
    return None


def _own_compiler() -> str:
    return (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]


def build(target: Path, flags: Sequence[str]) -> None:
    """Build the modules into a folder, and the checksum of their sources last. Programs that run keep the former ones.

    Raises: ImportError, Cython is missing; what else a compiler raises.
    """
    from Cython import Build
    from setuptools import Distribution, Extension

    cythonize: Any = Build.cythonize

    modules = sorted(path.stem for path in Path(kernel.SOURCES).glob("*.pxd"))
    with tempfile.TemporaryDirectory() as folder:
        # A copy: the compiler of Cython asks for names from the folder that holds the package.
        shutil.copytree(kernel.SOURCES, Path(folder, "sparrowmq", "kernel"), ignore=shutil.ignore_patterns("compiled"))
        Path(folder, "sparrowmq", "__init__.py").touch()
        before, own_compiler = Path.cwd(), os.environ.get("CC")
        os.chdir(folder)
        if packages():
            os.environ["CC"] = str(compiler())  # setuptools reads it
        try:
            extensions = [
                Extension(
                    f"sparrowmq.kernel.{module}",
                    [str(next(Path("sparrowmq/kernel").glob(f"{module}.py[x]"), f"sparrowmq/kernel/{module}.py"))],
                    extra_compile_args=list(flags),
                    extra_link_args=[flag for flag in flags if flag.startswith("-fsanitize")],
                )
                for module in modules
            ]
            parts = cythonize(extensions, compiler_directives=DIRECTIVES, quiet=True)
            package = Distribution({"name": "sparrowmq", "ext_modules": parts})
            command = package.get_command_obj("build_ext")
            command.build_lib, command.build_temp, command.parallel = "lib", "temp", os.cpu_count()
            command.ensure_finalized()
            command.run()
            built = Path("lib/sparrowmq/kernel")
            (built / kernel.CHECKSUM).write_text(kernel.checksum("sparrowmq/kernel"))
            for path in sorted(built.iterdir(), key=lambda path: path.name == kernel.CHECKSUM):
                shutil.copy(path, target / "copied")
                (target / "copied").replace(target / path.name)
        finally:
            os.chdir(before)
            if own_compiler is None:
                os.environ.pop("CC", None)


if __name__ == "__main__":
    sys.exit(main())
