"""The documentation by versions, on a branch that a web server shows as it is.

    gh-pages:  index.html        leads to the newest version
               versions.json     what the menu of versions shows (Material for MkDocs reads it)
               0.1.0/            the site of this version
               0.2.0/ ...

The branch is written without a checkout: other versions stay as they are, the same version is replaced. GitHub Pages
shows a branch of this name; any other web server shows the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tools.steps import StepFailed, output

BRANCH: Final = "gh-pages"
VERSIONS: Final = "versions.json"
LATEST: Final = "latest"

Version = dict[str, Any]  # version, title, aliases: as Material reads them


def build(root: Path, folder: Path, version: str) -> None:
    """Build the site of a version into `folder/version`. Raises: StepFailed, a page has a dead link."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config
    from mkdocs.exceptions import MkDocsException

    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        config = load_config(str(root / "mkdocs.yml"), site_dir=str(folder / version))
        config.extra["version"] = {
            "provider": "mike",
            "default": LATEST,
        }  # the format of versions.json, not the tool
        config.plugins.on_startup(command="build", dirty=False)
        build_site(config)
        config.plugins.on_shutdown()
    except (MkDocsException, SystemExit) as error:
        raise StepFailed(f"the site cannot be built: {error}") from None


def commit(root: Path, folder: Path, version: str, parent: str | None) -> str:
    """Commit the site in `folder/version` beside the versions of `parent`, as the branch's tip; returns the commit."""
    before = output(root, "git", "show", f"{parent}:{VERSIONS}") if parent else "[]"
    versions = with_version(json.loads(before), version)
    (folder / VERSIONS).write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(redirect(versions[0]["version"]), encoding="utf-8")
    (folder / ".nojekyll").touch()
    with tempfile.TemporaryDirectory() as scratch:
        variables = os.environ | {"GIT_INDEX_FILE": f"{scratch}/index"}

        def git(*words: str) -> str:
            return output(root, "git", *words, environment=variables)

        if parent:
            git("read-tree", parent)
            git("rm", "-r", "-q", "--cached", "--ignore-unmatch", "--", version)
        git(f"--work-tree={folder}", "add", "--force", "--ignore-removal", "--", str(folder))
        tree = git("write-tree")
        made = git("commit-tree", tree, *(["-p", parent] if parent else []), "-m", f"docs: version {version}")
        git("update-ref", f"refs/heads/{BRANCH}", made)
    return made


def with_version(versions: Sequence[Version], version: str) -> list[Version]:
    """The versions with one more, the newest first and marked as the latest."""
    names = sorted({version, *(each["version"] for each in versions)}, key=_by_numbers, reverse=True)
    return [{"version": name, "title": name, "aliases": [] if index else [LATEST]} for index, name in enumerate(names)]


def redirect(version: str) -> str:
    """A page that leads to a version."""
    return (
        '<!doctype html>\n<meta charset="utf-8">\n<title>SparrowMQ</title>\n'
        f'<meta http-equiv="refresh" content="0; url={version}/index.html">\n'
        f'<a href="{version}/index.html">SparrowMQ {version}</a>\n'
    )


def _by_numbers(version: str) -> list[tuple[int, str]]:
    """0.10.0 is newer than 0.9.0, and a number than a word such as rc1."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in version.split(".")]
