"""Breaks: small faults in the code, each written in the mark of the test that must find it.

    @pytest.mark.covers("S-TX-04", breaks="OpenTransactions.add: after_ms = 0")      # a capability
    @pytest.mark.guards("CommitLog.append: drop raise self._refusal")                # any other promise

A break is an address and an operation. The address is the end of a dotted path; parts in the middle may be missing:
`RouteTable.expire` is that method of `sparrowmq.namesrv.route_table`, in any folder. It may also be a class or a
module, for what is written there itself. `python -m tools.mutants --check` says which breaks do not fit.

    drop CODE           the statement that contains CODE is left out; `if x`, `with y` or `for z` with its block
    true CODE           the condition that contains CODE is always true; also `false CODE`, and `not CODE` negates it
    border CODE         the comparison that contains CODE takes its border in, or leaves it out: `<` and `<=`
    NAME = VALUE        another value for an assignment, an argument, its default, or an entry of a dict
    return VALUE        the function returns this at once
    swap CODE with CODE these two statements change places
    OLD -> NEW          another expression or statement

CODE is any piece of the statement or condition, made of whole words. The smallest node that contains it is meant,
and only one may; `CODE #2` is the second of several. Layout, quotes and comments do not count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

PACKAGES: Final = ("sparrowmq", "pyspark_rocketmq")
Node = TypeVar("Node", bound=ast.AST)
FOUND: Final = "tools/found.txt"
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BORDERS: Final = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


class BadBreak(Exception):
    """A break that does not fit the code; the text says why."""


@dataclass(frozen=True, slots=True)
class Break:
    """One mark: the break, the test that must find it (a node id of pytest), and the capability, if it is of one."""

    test: str
    text: str
    seed: str = ""


# --- the marks


def read_breaks(folder: Path) -> list[Break]:
    """All breaks in the marks of the tests below a folder."""
    found: list[Break] = []
    for file in sorted(folder.rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if "guards(" in text or "breaks=" in text:
            path = file.relative_to(folder.parent).as_posix()
            for scope, name, call in marks_of(ast.parse(text, str(file))):
                found += _breaks("::".join((path, *scope)), name, call)
    return found


def _breaks(test: str, name: str, call: ast.Call) -> Iterator[Break]:
    texts = [ast.literal_eval(each) for each in call.args] if name in ("covers", "guards") else []
    if name == "guards":
        yield from (Break(test, text) for text in texts)
    for keyword in call.keywords if texts else ():
        if keyword.arg == "breaks":
            yield Break(test, ast.literal_eval(keyword.value), ", ".join(texts))


def marks_of(node: ast.AST, scope: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, ast.Call]]:
    """Each mark of pytest below a node: the class and function that carry it, its name and its call.

    The bodies of functions are left out: they have no marks, and are most of a file.
    """
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        scope = (*scope, node.name)
        children = (*node.decorator_list, *(node.body if isinstance(node, ast.ClassDef) else ()))
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr=name)):
            yield scope, name, node
    for child in children:
        yield from marks_of(child, scope)


def read_found(root: Path) -> set[Break]:
    """The breaks of capabilities that their tests found in the last run."""
    lines = (root / FOUND).read_text(encoding="utf-8").splitlines() if (root / FOUND).is_file() else []
    parts = [line.split(" | ", 2) for line in lines if line.startswith("S-")]
    return {Break(test, text, seed) for seed, test, text in parts}


def write_found(root: Path, found: Sequence[Break]) -> None:
    lines = sorted(f"{each.seed} | {each.test} | {each.text}" for each in found)
    head = "Breaks of capabilities that their tests found. Written by `./run mutants`; do not edit.\n"
    (root / FOUND).write_text("\n".join((head, *lines)) + "\n", encoding="utf-8")


# --- addresses


@dataclass(frozen=True, slots=True)
class Place:
    """A module, class or function, and all its definitions of that path (a property has a getter and a setter)."""

    file: Path
    path: tuple[str, ...]
    nodes: list[Scope]


class Code:
    """The product's modules, classes and functions by their dotted paths."""

    def __init__(self, root: Path, packages: Sequence[str] = PACKAGES) -> None:
        self._root = root
        self._packages = packages

    @cached_property
    def _places(self) -> dict[str, list[Place]]:
        """All places by the last part of their paths."""
        found: dict[tuple[str, ...], Place] = {}
        for file in (file for name in self._packages for file in sorted((self._root / name).rglob("*.py"))):
            module = file.relative_to(self._root).with_suffix("").parts
            tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
            for path, node in _scopes(tree, module[:-1] if module[-1] == "__init__" else module):
                found.setdefault(path, Place(file, path, [])).nodes.append(node)
        by_name: dict[str, list[Place]] = {}
        for path, place in found.items():
            by_name.setdefault(path[-1], []).append(place)
        return by_name

    def find(self, address: str) -> Place:
        """Raises: BadBreak."""
        parts = address.split(".")
        found = [place for place in self._places.get(parts[-1], ()) if _fits(parts, place.path)]
        without_gaps = [place for place in found if list(place.path[-len(parts) :]) == parts]
        found = without_gaps if len(without_gaps) == 1 else found
        if len(found) != 1:
            paths = ", ".join(".".join(place.path) for place in found)
            raise BadBreak(f"{address} is ambiguous: {paths}" if found else f"there is no {address}")
        return found[0]

    def broken(self, text: str) -> tuple[Path, str]:
        """The file that a break changes, relative to the root, and its text with the break. Raises: BadBreak."""
        address, separator, operation = text.partition(": ")
        if not separator:
            raise BadBreak(f"not of the form `ADDRESS: OPERATION`: {text}")
        place = self.find(address)
        source = place.file.read_text(encoding="utf-8")
        try:
            changed = apply(source, _edits(place.nodes, operation.strip()))
        except BadBreak as error:
            raise BadBreak(f"{text}: {error}") from None
        return place.file.relative_to(self._root), changed


def _scopes(node: ast.AST, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Scope]]:
    if isinstance(node, Scope):
        yield path, node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _scopes(child, (*path, child.name))
        elif isinstance(child, ast.stmt):
            yield from _scopes(child, path)


def _fits(parts: Sequence[str], path: Sequence[str]) -> bool:
    """Whether the parts stand in a path in this order, the last one at its end."""
    rest = iter(path)
    return parts[-1] == path[-1] and all(part in rest for part in parts)


# --- operations


@dataclass(frozen=True, slots=True)
class Edit:
    """A node and the text that replaces it; an `insert` stands before the node, on a line of its own."""

    node: ast.expr | ast.stmt
    text: str
    is_insert: bool = False


def _edits(scopes: Sequence[Scope], operation: str) -> list[Edit]:
    """Raises: BadBreak."""
    nodes = [node for scope in scopes for node in _own_nodes(scope)]
    if " -> " in operation:
        old, new = _split(operation, " -> ")
        return [Edit(_same(nodes, old), new)]
    word, _, rest = operation.partition(" ")
    if word == "drop":
        return [Edit(_statement(nodes, rest), "pass")]
    if word in ("true", "false", "not"):
        condition = _condition(nodes, rest)
        return [Edit(condition, f"not ({ast.unparse(condition)})" if word == "not" else word.capitalize())]
    if word == "border":
        return [_moved_border(_condition(nodes, rest))]
    if word == "return":
        return [Edit(_first_statement(scopes), operation, is_insert=True)]
    if word == "swap":
        one, other = (_statement(nodes, each) for each in _split(rest, " with "))
        return [Edit(one, ast.unparse(other)), Edit(other, ast.unparse(one))]
    name, value = _split(operation, " = ")
    return [Edit(_value(nodes, name), value)]


def _split(text: str, separator: str) -> tuple[str, str]:
    one, found, other = text.partition(separator)
    if not found:
        raise BadBreak("no such operation")
    return one.strip(), other.strip()


def _own_nodes(scope: Scope) -> Iterator[ast.AST]:
    """The nodes below a function; those below a class or module, but not those of its functions and classes."""
    ahead = list(ast.iter_child_nodes(scope))
    while ahead:
        node = ahead.pop(0)
        yield node
        if isinstance(scope, _FUNCTIONS) or not isinstance(node, Scope):
            ahead[:0] = ast.iter_child_nodes(node)


def _statement(nodes: Sequence[ast.AST], code: str) -> ast.stmt:
    """The statement that contains the code itself: of one with a block its first line counts."""
    statements = [node for node in nodes if isinstance(node, ast.stmt) and not _is_docstring(node)]
    return _one([node for node in statements if _contains(_head(node), code)], code)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _head(statement: ast.stmt) -> str:
    text = ast.unparse(statement)
    return text.partition("\n")[0] if hasattr(statement, "body") else text


def _condition(nodes: Sequence[ast.AST], code: str) -> ast.expr:
    """The smallest condition that contains the code."""
    known = {id(each): each for node in nodes for each in _conditions(node)}
    found = [node for node in nodes if id(node) in known and _contains(ast.unparse(node), code)]
    inner = [
        node for node in found if not any(other is not node and other in ast.walk(node) for other in found)
    ]
    return _one([node for node in inner if isinstance(node, ast.expr)], code)


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    """The node itself, or parts of it, where they are conditions."""
    match node:
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            yield node.test
        case ast.comprehension():
            yield from node.ifs
        case ast.match_case(guard=ast.expr() as guard):
            yield guard
        case ast.BoolOp():
            yield from (node, *node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield from (node, node.operand)
        case ast.Compare():
            yield node


def _moved_border(condition: ast.expr) -> Edit:
    if not isinstance(condition, ast.Compare) or type(condition.ops[0]) not in _BORDERS:
        raise BadBreak(f"{ast.unparse(condition)} has no border")
    ops = [_BORDERS[type(condition.ops[0])](), *condition.ops[1:]]
    return Edit(condition, ast.unparse(ast.Compare(condition.left, ops, condition.comparators)))


def _first_statement(scopes: Sequence[Scope]) -> ast.stmt:
    if len(scopes) != 1 or not isinstance(scopes[0], _FUNCTIONS):
        raise BadBreak("only a function returns")
    body = scopes[0].body
    return body[1] if ast.get_docstring(scopes[0]) is not None and len(body) > 1 else body[0]


def _same(nodes: Sequence[ast.AST], code: str) -> ast.expr | ast.stmt:
    """The expression or statement that is this code."""
    code, number = _numbered(code)
    try:
        wanted = ast.parse(code).body[0]
    except (SyntaxError, IndexError):
        raise BadBreak(f"this is no Python: {code}") from None
    kind = ast.expr if isinstance(wanted, ast.Expr) else ast.stmt
    text = ast.unparse(wanted)
    found = [node for node in nodes if isinstance(node, kind) and ast.unparse(node) == text]
    return _one(found, f"{text} #{number}" if number else text)


def _value(nodes: Sequence[ast.AST], name: str) -> ast.expr:
    """The value of what has this name: a variable, an argument, its default, or an entry of a dict."""
    plain, number = _numbered(name)
    found = [value for node in nodes for target, value in _values(node) if _normal(target) == _normal(plain)]
    return _one(found, f"{plain} #{number}" if number else plain)


def _values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign():
            yield from ((ast.unparse(target), node.value) for target in node.targets)
        case (
            ast.AnnAssign(value=ast.expr() as value) | ast.AugAssign(value=value) | ast.NamedExpr(value=value)
        ):
            yield ast.unparse(node.target), value
        case ast.keyword(arg=str() as name):
            yield name, node.value
        case ast.Dict():
            yield from (
                (ast.unparse(key), value) for key, value in zip(node.keys, node.values, strict=True) if key
            )
        case ast.arguments():
            by_place = [*node.posonlyargs, *node.args]
            first = len(by_place) - len(node.defaults)
            pairs = zip(
                (*by_place[first:], *node.kwonlyargs), (*node.defaults, *node.kw_defaults), strict=True
            )
            yield from ((argument.arg, default) for argument, default in pairs if default)


def _one(found: Sequence[Node], code: str) -> Node:
    """The only node, or that of the number at the end of the code."""
    _, number = _numbered(code)
    if number and number <= len(found):
        return found[number - 1]
    if number or len(found) != 1:
        raise BadBreak(f"{len(found)} nodes fit, not one: {code}")
    return found[0]


def _numbered(code: str) -> tuple[str, int]:
    found = re.fullmatch(r"(.*) #(\d+)", code, re.DOTALL)
    return (found[1], int(found[2])) if found else (code, 0)


def _contains(text: str, code: str) -> bool:
    wanted = _normal(_numbered(code)[0])
    begin, end = (r"\b" if re.match(r"\w", letter) else "" for letter in (wanted[:1], wanted[-1:]))
    return re.search(begin + re.escape(wanted) + end, text) is not None


def _normal(code: str) -> str:
    """A piece of code in the layout of `ast.unparse`, where it can be parsed alone."""
    try:
        return ast.unparse(ast.parse(code.strip()))
    except SyntaxError:
        return code.strip()


# --- the text


def apply(source: str, edits: Sequence[Edit]) -> str:
    """The source with other text in the place of nodes; later lines keep their numbers. Raises: BadBreak."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = b"".join(lines)
    for edit in sorted(edits, key=lambda edit: edit.node.lineno, reverse=True):
        node = edit.node
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        text = text[:begin] + _new_text(edit, text[begin:end].decode()).encode() + text[end:]
    changed = text.decode()
    try:
        ast.parse(changed)
    except SyntaxError as error:
        raise BadBreak(f"the changed code cannot be parsed: {error}") from None
    if all(not edit.is_insert and _normal(edit.text) == ast.unparse(edit.node) for edit in edits):
        raise BadBreak("nothing changes")
    return changed


def _new_text(edit: Edit, old: str) -> str:
    if edit.is_insert:
        return f"{edit.text}\n{' ' * edit.node.col_offset}{old}"
    if isinstance(edit.node, ast.expr):
        return "(" + edit.text + "\n" * old.count("\n") + ")"
    new = edit.text.replace("\n", "\n" + " " * edit.node.col_offset)
    if old.startswith("elif"):
        new = f"else: {new}"
    return new + "\n" * (old.count("\n") - new.count("\n"))
