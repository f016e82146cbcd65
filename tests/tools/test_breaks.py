import ast
import textwrap
from pathlib import Path

import pytest

from tools.breaks import BadBreak, Break, Code, read_breaks, read_found, write_found

SOURCE = '''
LIMIT_S = 60.0


class Queue(Base, frozen=True):
    size: int = 3

    def take(self, most, *, wait_s=LIMIT_S):
        """Take some of self.file."""
        if self.is_closed and not self.is_forced:
            raise QueueClosed("gone")
        elif most < 0:
            return None
        self.file.sync(
            self.folder,
        )
        self.taken = most
        names = {"é": [name for name in self.names if name <= most]}
        return self.count(names, limit=most + 1)

    @property
    def count(self): return 1


async def empty(queue):
    first = await queue.take(1)
    queue.end(first)
    queue.end(first)
'''


@pytest.fixture
def code(tmp_path) -> Code:
    empty = "def empty(): pass"
    for name, text in {"store/queue.py": SOURCE, "store/__init__.py": "", "broker/queue.py": empty}.items():
        (tmp_path / "product" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "product" / name).write_text(text)
    return Code(tmp_path, ["product"])


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("take: drop self.file", "self.file.sync(\n            self.folder,\n        )", "pass\n\n"),
        ("take: drop QueueClosed", 'raise QueueClosed("gone")', "pass"),
        ("take: drop most < 0", "elif most < 0:\n            return None", "else: pass\n"),
        ("take: true not self.is_forced", "not self.is_forced", "(True)"),
        ("take: false is_closed", "self.is_closed and", "(False) and"),
        ("take: not most < 0", "most < 0", "(not (most < 0))"),
        ("take: border name", "name <= most", "(name < most)"),
        ("take: self.taken = 0", "self.taken = most", "self.taken = (0)"),
        ("take: limit = most", "limit=most + 1", "limit=(most)"),
        ("take: wait_s = 1", "wait_s=LIMIT_S", "wait_s=(1)"),
        ("take: 'é' = []", "[name for name in self.names if name <= most]", "([])"),
        ("take: most + 1 -> most - 1", "most + 1", "(most - 1)"),
        ("take: return None -> raise StopIteration", "return None", "raise StopIteration"),
        ("take: return most", "        if self.is_closed", "        return most\n        if self.is_closed"),
        (
            "store.empty: swap take(1) with queue.end(first) #2",
            "first = await queue.take(1)\n    queue.end(first)\n    queue.end(first)",
            "queue.end(first)\n    queue.end(first)\n    first = await queue.take(1)",
        ),
        ("Queue: size = 4", "size: int = 3", "size: int = (4)"),
        ("Queue: frozen = False", "frozen=True", "frozen=(False)"),
        ("store.queue: LIMIT_S = 6", "LIMIT_S = 60.0", "LIMIT_S = (6)"),
        (
            "store.empty: drop queue.end(first) #2",
            "queue.end(first)\n    queue.end(first)",
            "queue.end(first)\n    pass",
        ),
        ("product.store.queue.empty: await queue.take(1) -> 1", "await queue.take(1)", "(1)"),
    ],
)
def test_a_break_replaces_its_node_alone(code, text, old, new):
    file, changed = code.broken(text)
    assert file == Path("product/store/queue.py")
    assert changed == SOURCE.replace(old, new)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("take.drop x", "not of the form"),
        ("Queue.give: drop x", "there is no Queue.give"),
        ("empty: return 1", "empty is ambiguous: product.broker.queue.empty, product.store.queue.empty"),
        ("take: drop tak", "0 nodes fit"),
        ("take: drop self", "5 nodes fit"),
        ("take: drop self #9", "5 nodes fit"),
        ("take: explode", "no such operation"),
        ("take: border self.is_closed", "has no border"),
        ("take: most = 3", "0 nodes fit"),
        ("take: most +-> 3", "no such operation"),
        ("take: (( -> 3", "no Python"),
        ("take: self.taken = (", "cannot be parsed"),
        ("take: self.taken = most", "nothing changes"),
        ("Queue: return 1", "only a function returns"),
    ],
)
def test_a_break_that_does_not_fit_says_why(code, text, why):
    with pytest.raises(BadBreak) as caught:
        code.broken(text)
    assert why in str(caught.value)


def test_breaks_survive_a_new_layout_and_a_move(code, tmp_path):
    (tmp_path / "product/store/queue.py").unlink()
    target = tmp_path / "product/store/queues/queue.py"
    target.parent.mkdir()
    target.write_text(ast.unparse(ast.parse(SOURCE)))
    file, changed = code.broken('store.queue.Queue.take: drop raise QueueClosed("gone")')
    assert (file, "QueueClosed" in changed) == (Path("product/store/queues/queue.py"), False)


def test_breaks_are_read_from_the_marks_of_tests(tmp_path):
    marked = """
        import pytest

        @pytest.mark.covers("S-TX-04", breaks="a: drop b")
        @pytest.mark.guards("c: drop d", "e: drop f")
        async def test_a(): ...

        class TestB:
            @pytest.mark.covers("S-TX-05")
            @pytest.mark.guards("g: drop h")
            def test_b(self): "guards('no mark')"
    """
    file = tmp_path / "tests" / "store" / "test_x.py"
    file.parent.mkdir(parents=True)
    file.write_text(textwrap.dedent(marked))
    assert read_breaks(tmp_path / "tests") == [
        Break("tests/store/test_x.py::test_a", "a: drop b", "S-TX-04"),
        Break("tests/store/test_x.py::test_a", "c: drop d"),
        Break("tests/store/test_x.py::test_a", "e: drop f"),
        Break("tests/store/test_x.py::TestB::test_b", "g: drop h"),
    ]


def test_found_breaks_are_kept_in_a_file(tmp_path):
    (tmp_path / "tools").mkdir()
    assert read_found(tmp_path) == set()
    found = [
        Break("tests/a.py::test_a", "a: x | y -> y", "S-TX-04"),
        Break("tests/a.py::test_b", "b: drop c", "S-B-01"),
    ]
    write_found(tmp_path, found)
    assert read_found(tmp_path) == set(found)
