"""`./run compile`: compile the modules that each message passes (`sparrowmq.compiled.MODULES`) with mypyc, in place.

The C compiler needs three to five minutes; any C compiler will do, with Python's headers. Without them, and after each
edit of such a module, everything runs from source at half the speed.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from mypyc.build import mypycify
from setuptools import Distribution

from sparrowmq import compiled

ROOT = Path(compiled.__file__).parents[1]


def main() -> int:
    if (missing := what_is_missing()) is not None:
        print(f"sparrowmq runs from source, at half its speed: {missing}", file=sys.stderr)
        return 0
    if compiled.recorded() == compiled.checksum():
        return 0
    print(f"compiling {len(compiled.MODULES)} modules (three to five minutes)", file=sys.stderr)
    forget()
    try:
        build()
    except (Exception, SystemExit) as error:
        print(f"sparrowmq runs from source: compiling failed ({error}); please tell us", file=sys.stderr)
        return 0
    Path(compiled.RECORD).write_text(compiled.checksum())
    return 0


def what_is_missing() -> str | None:
    """Why nothing can be compiled here."""
    compiler = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler {compiler}"
    if not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        return "Python's headers are not installed (Debian, Ubuntu: python3-dev)"
    return None


def forget() -> None:
    """Delete what was compiled before; until the end of a build no record fits."""
    Path(compiled.RECORD).write_text("unfinished")
    for suffix in EXTENSION_SUFFIXES:
        for path in (*ROOT.glob(f"sparrowmq*{suffix}"), *ROOT.glob(f"sparrowmq/**/*{suffix}")):
            if "kernel" not in path.parts:
                path.unlink()


def build() -> None:
    os.chdir(ROOT)
    sources = [os.path.relpath(compiled.source(module), ROOT) for module in compiled.MODULES]
    with tempfile.TemporaryDirectory() as folder:
        parts = mypycify(
            sources,
            opt_level="3",
            debug_level="0",
            group_name="sparrowmq",
            target_dir=os.path.join(folder, "c"),
        )
        if os.name == "posix":
            for part in parts:
                # Any other library might replace a function that is not hidden, so none could be inlined. And to look
                # for warnings in half a million generated lines takes as long as to compile them.
                part.extra_compile_args += ["-fvisibility=hidden", "-w"]
        package = Distribution({"name": "sparrowmq", "ext_modules": parts})
        command = package.get_command_obj("build_ext")
        command.inplace, command.build_temp = True, os.path.join(folder, "o")
        command.ensure_finalized()
        command.run()


if __name__ == "__main__":
    sys.exit(main())
