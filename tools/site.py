"""The part of the site that is not a page in docs/: a hook of MkDocs, named in mkdocs.yml.

It adds the generated pages, the pages that live outside of docs/ (CHANGELOG.md, CONTRIBUTING.md, bench/RESULTS.md), and
every other file of the project that a page links to. None of them is committed in docs/.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools import docs

ROOT: Final = Path(__file__).parents[1]
# Pages of the site by their path there, and the file that each comes from.
PAGES_ELSEWHERE: Final = {
    "understand/benchmarks.md": "bench/RESULTS.md",
    "understand/changelog.md": "CHANGELOG.md",
    "understand/contributing.md": "CONTRIBUTING.md",
}
SEARCH_BOOSTS: Final = {
    r"understand/(glossary|differences|interop)": 1.0,
    r"understand/": 0.2,
    r"use/client|operate/operating": 2.0,
    r"use/errors|start/testing": 1.5,
    r"start/from-": 0.6,
    r"": 1.0,
}
_LINK: Final = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and those that live outside of docs/."""
    for name, text in docs.generated_pages().items():
        files.append(File.generated(config, name, content=text))
    for name, source in PAGES_ELSEWHERE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files outside of docs/ lead to those files, or to the pages of the site that show them."""
    name = page.file.src_uri
    page.meta["search"] = {"boost": boost_of(name)}
    source = PAGES_ELSEWHERE.get(name, f"docs/{name}")

    def add(path: str, shown: str) -> None:
        if files.get_file_from_path(shown) is None:
            files.append(File.generated(config, shown, abs_src_path=str(ROOT / path)))

    return rewritten(markdown, name, source, add)


def boost_of(name: str) -> float:
    """How much a page counts in the search: titles of decisions would hide the pages that people use."""
    return next(boost for pattern, boost in SEARCH_BOOSTS.items() if re.match(pattern, name))


def rewritten(markdown: str, name: str, source: str, add: Callable[[str, str], None]) -> str:
    """The text of the site's page `name`, which `source` holds, with its links as the site needs them.

    `add` is called with each file of the project that the text links to and that is not a page, and its path there.
    """
    homes = {source: name for name, source in PAGES_ELSEWHERE.items()}

    def there(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        if target.startswith("docs/"):
            home = target.removeprefix("docs/")
        elif target in homes:
            home = homes[target]
        elif (ROOT / target).is_file():
            # As text, or MkDocs would take a Markdown file for a page.
            home = f"files/{target}.txt" if target.endswith(".md") else f"files/{target}"
            add(target, home)
        else:
            return link[0]
        return link[1] + os.path.relpath(home, posixpath.dirname(name) or ".") + link[3]

    return _outside_of_code(markdown, lambda text: _LINK.sub(there, text))


def _outside_of_code(markdown: str, change: Callable[[str], str]) -> str:
    pieces = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(piece if number % 2 else change(piece) for number, piece in enumerate(pieces))
