"""Releases: the parts that decide, git's part in a small repository, and a whole release against a local index."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sparrowmq.version import VERSION
from tools import release, site_versions, smoke, steps

ROOT = Path(__file__).parents[2]
HEAD, OTHER = "1" * 40, "2" * 40
# Of the owner who publishes in these tests.
OWNER = {f"GIT_{who}_{what}": "owner" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *words: str) -> str:
    return steps.output(folder, "git", *words, environment=os.environ | OWNER)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch) -> Path:
    """A repository with one commit and an empty remote, which release.py takes for the project's."""
    monkeypatch.setattr(release, "ROOT", tmp_path / "project")
    for name, value in OWNER.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "README.md").write_text("words\n")
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        git(tmp_path / "project", *words)
    git(tmp_path / "project", "remote", "add", "origin", "../remote.git")
    return tmp_path / "project"


# Deciding -----------------------------------------------------------------------------------------------------------


def test_other_options_of_publish_go_to_twine():
    assert release.parsed([]) == ("origin", [])
    assert release.parsed(["--remote", "mine", "--repository", "testpypi", "--skip-existing"]) == (
        "mine",
        ["--repository", "testpypi", "--skip-existing"],
    )


def test_only_the_pure_wheel_and_the_sources_are_uploaded():
    names = [file.name for file in release.distributions(Path("dist"), "0.1.0")]
    assert names == ["sparrowmq-0.1.0-py3-none-any.whl", "sparrowmq-0.1.0.tar.gz"]


@pytest.mark.parametrize("text", ["# Changelog\n", "## 0.1.0 (unreleased)\n\n## 0.0.9 (2026-01-01)\n\n- Words.\n"])
def test_a_version_without_words_in_the_changelog_is_refused(text):
    with pytest.raises(steps.StepFailed, match=r"no section for 0\.1\.0"):
        release.check_changelog(text, "0.1.0")


def test_the_changelog_of_the_project_is_ready():
    release.check_changelog((ROOT / "CHANGELOG.md").read_text(), VERSION)


@pytest.mark.parametrize(
    ("status", "local_tag", "pushed_tag", "words"),
    [
        ("", None, None, None),
        ("", HEAD, None, None),
        ("", HEAD, HEAD, None),
        ("?? notes.txt", None, None, r"not clean.*\?\? notes.txt"),
        ("", OTHER, None, f"tag v{VERSION} here is another commit; raise VERSION"),
        ("", None, OTHER, f"tag v{VERSION} at the remote is another commit"),
    ],
)
def test_only_a_clean_tree_at_its_tag_is_published(status, local_tag, pushed_tag, words):
    problem = release.problem(status, HEAD, local_tag, pushed_tag)
    assert (problem is None) == (words is None)
    assert re.search(words or "", problem or "", re.DOTALL)


def test_an_annotated_tag_of_the_remote_is_the_commit_behind_it():
    plain = f"{HEAD}\trefs/tags/v1"
    assert release.remote_tag("") is None
    assert release.remote_tag(plain) == HEAD
    assert release.remote_tag(f"{OTHER}\trefs/tags/v1\n{HEAD}\trefs/tags/v1^{{}}") == HEAD


def test_versions_of_the_docs_are_sorted_by_their_numbers():
    versions: list[dict] = []
    for version in ("0.9.0", "0.10.0", "0.10.0rc1", "0.9.0"):
        versions = site_versions.with_version(versions, version)
    assert [each["version"] for each in versions] == ["0.10.0", "0.10.0rc1", "0.9.0"]
    assert [each["aliases"] for each in versions] == [["latest"], [], []]


def test_the_readme_has_a_test_to_try():
    test = smoke.example_test((ROOT / "README.md").read_text())
    assert "rocketmq_topic" in test and compile(test, "README.md", "exec")
    with pytest.raises(steps.StepFailed, match="shows no test"):
        smoke.example_test("```python\nprint()\n```\n")


def test_programs_of_a_fresh_environment_see_none_of_our_settings():
    ours = {"NAMESRV_ADDR": "a:1", "RMQ_BROKER_listenPort": "1", "SPARROWMQ_KERNEL": "plain", "PYTHONPATH": "."}
    assert smoke.own_variables(ours | {"LANG": "C", "PIP_INDEX_URL": "x"}) == {
        "LANG": "C",
        "PIP_INDEX_URL": "x",
    }


def test_a_step_that_fails_says_what_it_printed(tmp_path):
    with pytest.raises(steps.StepFailed, match=r"(?s)this command failed: .*no such luck"):
        steps.output(tmp_path, sys.executable, "-c", "raise SystemExit('no such luck')")
    with pytest.raises(steps.StepFailed, match="failed with status 3"):
        steps.run(tmp_path, sys.executable, "-c", "raise SystemExit(3)")


def test_an_unknown_argument_is_answered_with_the_usage(capsys):
    assert release.main(["now"]) == 1
    assert "usage: ./run release, or ./run publish" in capsys.readouterr().err


# With git -----------------------------------------------------------------------------------------------------------


def test_a_repository_is_checked_before_anything_is_built(repository):
    assert release.check_repository("origin") == "main"
    with pytest.raises(steps.StepFailed, match="no git remote 'mine'"):
        release.check_repository("mine")
    (repository / "notes.txt").write_text("left here")
    with pytest.raises(steps.StepFailed, match="not clean"):
        release.check_repository("origin")
    (repository / "notes.txt").unlink()
    git(repository, "checkout", "-q", "--detach")
    with pytest.raises(steps.StepFailed, match="no branch is checked out"):
        release.check_repository("origin")


def test_the_tag_is_made_once_and_found_again(repository):
    release.tag()
    release.tag()
    assert git(repository, "tag") == f"v{VERSION}"
    git(repository, "push", "-q", "origin", "main", f"v{VERSION}")
    assert release.check_repository("origin") == "main"
    git(repository, "commit", "-q", "--allow-empty", "-m", "later")
    with pytest.raises(steps.StepFailed, match="raise VERSION"):
        release.check_repository("origin")


def test_versions_of_the_docs_stay_beside_each_other(repository, tmp_path):
    def add(version: str, **pages: str) -> None:
        site = tmp_path / f"site-{version}-{len(pages)}"
        (site / version / "use").mkdir(parents=True)
        for name, text in pages.items():
            (site / version / "use" / f"{name}.html").write_text(text)
        site_versions.commit(repository, site, version, release.docs_parent("origin"))
        git(repository, "push", "-q", "origin", site_versions.BRANCH)

    def show(path: str) -> str:
        return git(tmp_path / "remote.git", "show", f"{site_versions.BRANCH}:{path}")

    assert release.docs_parent("origin") is None
    add("0.1.0", client="first", old="gone later")
    add("0.2.0", client="second")
    add("0.1.0", client="first, corrected")
    assert show("0.1.0/use/client.html") == "first, corrected" and show("0.2.0/use/client.html") == "second"
    assert [each["version"] for each in json.loads(show("versions.json"))] == ["0.2.0", "0.1.0"]
    assert "url=0.2.0/index.html" in show("index.html")
    names = git(tmp_path / "remote.git", "ls-tree", "-r", "--name-only", site_versions.BRANCH).splitlines()
    assert "0.1.0/use/old.html" not in names and ".nojekyll" in names and "README.md" not in names
    assert git(repository, "status", "--porcelain") == "", "the work tree is as it was"


# All of it ----------------------------------------------------------------------------------------------------------


class Index(BaseHTTPRequestHandler):
    """A package index: takes what twine uploads, and serves it to pip."""

    files: dict[str, bytes]  # of the server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        for part in message_from_bytes(head + body, policy=policy.HTTP).iter_parts():
            if name := part.get_filename():
                self.files[name] = part.get_content()
        self._answer(b"")

    def do_GET(self) -> None:
        name = self.path.rpartition("/files/")[2]
        links = "".join(f'<a href="/files/{each}">{each}</a>' for each in self.files)
        self._answer(self.files.get(name, links.encode()), "application/zip" if name in self.files else "text/html")

    def _answer(self, body: bytes, kind: str = "text/html") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def index() -> Iterator[tuple[str, dict[str, bytes]]]:
    """The address of a running index, and its files by their names."""
    files: dict[str, bytes] = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("OwnIndex", (Index,), {"files": files})) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", files
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def project(repository: Path) -> Path:
    """The files of this tree, committed or not, as the only commit of a repository with an empty remote."""
    for name in git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file():
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, repository / name)
    git(repository, "add", "--all")
    git(repository, "commit", "-q", "--amend", "-m", "all")
    return repository


def make_environment(folder: Path, project: Path) -> Path:
    """An environment with what `./run publish` installs; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    locks = [str(project / "requirements" / name) for name in ("build.txt", "release.txt")]
    subprocess.run([*pip, "--require-hashes", "-r", locks[0]], check=True)
    subprocess.run([*pip, "--require-hashes", "--no-build-isolation", "-r", locks[1]], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(project)], check=True)
    return folder / "bin" / "python"


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_published_version_is_installed_from_the_index(project, tmp_path):
    python = make_environment(tmp_path / "environment", project)
    with index() as (address, files):
        variables = smoke.own_variables(os.environ) | OWNER
        variables |= {
            "TWINE_REPOSITORY_URL": f"{address}/",
            "TWINE_USERNAME": "owner",
            "TWINE_PASSWORD": "secret",
        }
        command = [str(python), "-m", "tools.release", "publish", "--disable-progress-bar"]
        done = subprocess.run(command, cwd=project, env=variables, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0 and done.stderr.endswith(f"release: {VERSION} is published\n"), done.stderr
        assert set(files) == {file.name for file in release.distributions(Path(), VERSION)}
        subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "user")], check=True)
        pip = [str(tmp_path / "user" / "bin" / "pip"), "--isolated", "install", "-q", "--no-deps"]
        subprocess.run([*pip, "--index-url", f"{address}/simple", "sparrowmq"], check=True)
    said = steps.output(tmp_path, tmp_path / "user" / "bin" / "sparrowmq", "--version")
    assert said == f"sparrowmq, version {VERSION}"
    remote = tmp_path / "remote.git"
    assert git(remote, "rev-parse", f"v{VERSION}^{{commit}}") == git(remote, "rev-parse", "main")
    assert re.search(rf"^## {VERSION} \(\d{{4}}-\d\d-\d\d\)$", git(remote, "show", "main:CHANGELOG.md"), re.MULTILINE)
    assert "SparrowMQ" in git(remote, "show", f"{site_versions.BRANCH}:{VERSION}/index.html")
