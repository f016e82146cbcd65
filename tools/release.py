"""`./run release` builds and checks a version; `./run publish` does so, uploads it, and pushes its tag and its docs.

    ./run release               nothing leaves this machine:
                                  dist/ gets the pure wheel and the source distribution, twine checks them,
                                  the wheel works in three fresh environments (tools/smoke.py),
                                  build/release/ gets the site of the version, CHANGELOG.md has its section
    ./run publish [--remote NAME] [options of twine upload]
                                  the tree is clean, and the tag v<version> is new or is here;
                                  CHANGELOG.md gets the date (a commit), all of the above, then the tag,
                                  `twine upload`, and `git push` of the branch, the tag and gh-pages

The repository of packages and its credentials are the owner's own settings: ~/.pypirc, or TWINE_REPOSITORY_URL,
TWINE_USERNAME and TWINE_PASSWORD. docs/understand/release.md has the steps for people.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sparrowmq.version import VERSION
from tools import changelog, site_versions, smoke, wheel
from tools.steps import StepFailed, output, run, say

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
SITE: Final = ROOT / "build" / "release"
TAG: Final = f"v{VERSION}"
PURE: Final = {"SPARROWMQ_KERNEL": "plain"}


def main(arguments: Sequence[str]) -> int:
    """Build, or publish if that is the first argument; the exit status is 1 if a step failed."""
    logging.basicConfig(format="release: %(message)s")  # MkDocs logs what is wrong with a page
    publishes = arguments[:1] == ["publish"]
    try:
        if publishes:
            publish(*parsed(arguments[1:]))
        elif arguments:
            raise StepFailed("usage: ./run release, or ./run publish [--remote NAME] [options of twine upload]")
        else:
            build()
    except (StepFailed, changelog.ChangelogError) as error:
        say(f"stopped: {error}")
        return 1
    say(f"{VERSION} is {'published' if publishes else f'ready; ./run publish uploads it and pushes {TAG}'}")
    return 0


def parsed(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The remote, and the options of twine."""
    parser = argparse.ArgumentParser(prog="./run publish", description="All other options go to `twine upload`.")
    parser.add_argument("--remote", default="origin", help="where the branch, the tag and the docs are pushed")
    known, others = parser.parse_known_args(arguments)
    return known.remote, others


def build() -> list[Path]:
    """Build the version, and try it; returns the files to upload. Raises: StepFailed."""
    check_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), VERSION)
    files = build_distributions()
    say("checking the metadata")
    run(ROOT, sys.executable, "-m", "twine", "check", "--strict", *files)
    smoke.check(files[0], VERSION, ROOT / "README.md")
    say(f"building the site of {VERSION}")
    site_versions.build(ROOT, SITE, VERSION)
    return files


def build_distributions() -> list[Path]:
    """Build the wheel and the source distribution into dist/. Raises: StepFailed."""
    files = distributions(DIST, VERSION)
    DIST.mkdir(exist_ok=True)
    for file, target in zip(files, ("wheel", "sdist"), strict=True):
        say(f"building {file.name}")
        file.unlink(missing_ok=True)
        if not wheel.hatch(sys.executable, ROOT, target, DIST, PURE) or not file.is_file():
            raise StepFailed(f"{file.name} was not built")
    return files


def distributions(folder: Path, version: str) -> list[Path]:
    """The files of a version: the pure wheel, which works everywhere, and the source distribution.

    Compiled wheels of `./run wheel` stay out: package indexes refuse the tag linux_x86_64.
    """
    return [folder / f"sparrowmq-{version}-py3-none-any.whl", folder / f"sparrowmq-{version}.tar.gz"]


def check_changelog(text: str, version: str) -> None:
    """Raises: StepFailed, CHANGELOG.md has no section for the version, or an empty one."""
    section = changelog.section(text, version)
    if section is None or len(section.strip().splitlines()) < 2:
        raise StepFailed(f"CHANGELOG.md has no section for {version}; write one, or run python -m tools.changelog")


# Publishing -------------------------------------------------------------------------------------------------------


def publish(remote: str, twine_options: Sequence[str]) -> None:
    """Upload the version, and push its tag and its docs. Raises: StepFailed; what was done is done again then."""
    branch = check_repository(remote)
    date_changelog()
    files = build()
    tag()
    say(f"adding the site to {site_versions.BRANCH}")
    site_versions.commit(ROOT, SITE, VERSION, docs_parent(remote))
    references = [branch, f"refs/tags/{TAG}", site_versions.BRANCH]
    run(ROOT, "git", "push", "--quiet", "--dry-run", "--atomic", remote, *references)  # before anything is public
    say("uploading")
    run(ROOT, sys.executable, "-m", "twine", "upload", *twine_options, *files)
    say(f"pushing {', '.join(references)} to {remote}")
    run(ROOT, "git", "push", "--quiet", "--atomic", remote, *references)


def check_repository(remote: str) -> str:
    """The branch to push. Raises: StepFailed, the repository is not ready for a release."""
    if remote not in output(ROOT, "git", "remote").splitlines():
        raise StepFailed(f"there is no git remote {remote!r}; `git remote add {remote} URL`, or give --remote NAME")
    branch = output(ROOT, "git", "branch", "--show-current")
    if not branch:
        raise StepFailed("no branch is checked out; check out the branch that is released")
    head = commit_of("HEAD")
    why_not = problem(
        output(ROOT, "git", "status", "--porcelain"),
        head,
        commit_of(f"refs/tags/{TAG}"),
        remote_tag(output(ROOT, "git", "ls-remote", "--tags", remote, TAG, f"{TAG}^{{}}")),
    )
    if why_not:
        raise StepFailed(why_not)
    return branch


def problem(status: str, head: str | None, local_tag: str | None, pushed_tag: str | None) -> str | None:
    """The reason why a tree cannot be published, or None.

    Args:
        status: what `git status --porcelain` prints.
        head, local_tag, pushed_tag: commits; None where there is none.
    """
    if status:
        return f"the tree is not clean; commit these files, or remove them:\n{status}"
    for where, tagged in (("here", local_tag), ("at the remote", pushed_tag)):
        if tagged not in (None, head):
            return (
                f"the tag {TAG} {where} is another commit; raise VERSION in sparrowmq/version.py, or delete a tag that "
                "was never published"
            )
    return None


def remote_tag(listed: str) -> str | None:
    """The commit of a tag in the lines of `git ls-remote`; an annotated tag has its commit in the line with ^{}."""
    lines = [line.split() for line in listed.splitlines()]
    commits = {name.endswith("^{}"): commit for commit, name in lines}
    return commits.get(True) or commits.get(False)


def date_changelog() -> None:
    """Give the section of the version its date, and commit that."""
    if changelog.collect(ROOT, VERSION, datetime.now(UTC).date().isoformat()):
        say(f"committing CHANGELOG.md with the date of {VERSION}")
        run(
            ROOT,
            "git",
            "commit",
            "--quiet",
            "-m",
            f"release: date {VERSION}",
            "--",
            "CHANGELOG.md",
            "changes",
        )


def tag() -> None:
    """Tag the commit that was built, unless it has the tag."""
    if commit_of(f"refs/tags/{TAG}") is None:
        say(f"tagging {TAG}")
        run(ROOT, "git", "tag", "--annotate", "-m", f"SparrowMQ {VERSION}", TAG)


def docs_parent(remote: str) -> str | None:
    """The commit of the docs at the remote, fetched; None if there are none yet."""
    if not output(ROOT, "git", "ls-remote", "--heads", remote, site_versions.BRANCH):
        return None
    run(ROOT, "git", "fetch", "--quiet", remote, site_versions.BRANCH)
    return commit_of("FETCH_HEAD")


def commit_of(name: str) -> str | None:
    """The commit that a name of git means, or None."""
    command = ["git", "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
