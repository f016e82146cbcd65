"""Count names and wiring that the rules refuse: `python -m tools.offences`, part of `./run lint`.

    python -m tools.offences            print what is new, or is gone and still listed; the exit status is then 1
    python -m tools.offences --write    shorten the list in tools/offences.txt; refused if there is a new offence
    python -m tools.offences WORD       print each place of the offences that contain a word

There are three kinds:

    name      a class, function, attribute or parameter that is called by a bare participle or pronoun
    class     a class of more than 30 methods; each method beyond them counts
    wiring    another object's attribute is set to a function or a collaborator, after the object was constructed

tools/offences.txt lists today's offences and how many places each has. The list may only get shorter. It has no files
and lines, so code can move.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.size import MAX_METHODS, ROOT, Product

LIST: Final = ROOT / "tools" / "offences.txt"
SAYING_NOTHING: Final = re.compile(
    r"_*(found|told|kept|given|said|asked|held|taken|gone|begun|settled|known|wanted|who|what|why|this|some|each)_*",
    re.IGNORECASE,
)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_VALUES: Final = re.compile(r"dataclass|Struct|Enum|NamedTuple|Exception|Error")
Offence = tuple[str, str, int]  # the offence, its file, its line


def offences(product: Product) -> Iterator[Offence]:
    wiring = Wiring(product)
    for file, tree in product.trees.items():
        name = file.relative_to(product.root).as_posix()
        for node in ast.walk(tree):
            yield from ((f"name {word}", name, line) for word, line in _names(node) if SAYING_NOTHING.fullmatch(word))
            yield from ((f"wiring {text}", name, line) for text, line in wiring.in_statement(node))
    for full_name, methods in product.large_classes().items():
        module, _, class_name = full_name.rpartition(".")
        yield from [(f"class {class_name}", module, 1)] * (methods - MAX_METHODS)


def _names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a node defines; those of local variables are left out."""
    match node:
        case ast.ClassDef(name=name, body=body, lineno=line):
            yield name, line
            for child in body:
                if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
                    yield child.target.id, child.lineno
        case ast.FunctionDef(name=name, args=args) | ast.AsyncFunctionDef(name=name, args=args):
            yield name, node.lineno
            every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
            yield from ((each.arg, each.lineno) for each in every if each is not None)
        case ast.Attribute(value=ast.Name("self"), attr=name, ctx=ast.Store(), lineno=line):
            yield name, line


class Wiring:
    """Knows which attributes of the product hold functions and collaborators, by their names alone."""

    def __init__(self, product: Product) -> None:
        classes = [each for tree in product.trees.values() for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]
        self._functions = {
            child.name
            for tree in product.trees.values()
            for child in ast.walk(tree)
            if isinstance(child, _FUNCTIONS) and not _is_property(child)
        }
        self._collaborators = {each.name for each in classes if not _is_value(each)}
        self._holders = {name for each in classes for name, kind in _annotations(each) if self._is_collaborator(kind)}
        self._fields = {name for each in classes for name, _ in _annotations(each)}

    def _is_collaborator(self, annotation: str) -> bool:
        return "Callable" in annotation or bool(self._collaborators & set(re.findall(r"\w+", annotation)))

    def in_statement(self, node: ast.AST) -> Iterator[tuple[str, int]]:
        """Yield `target.attribute = value` where an assignment wires another object."""
        if isinstance(node, ast.Assign):
            value = node.value.body if isinstance(node.value, ast.IfExp) else node.value
            for target in node.targets:
                if not isinstance(target, ast.Attribute) or ast.unparse(target.value) in ("self", "cls"):
                    continue
                if self._is_wired(target.attr, value):
                    yield ast.unparse(target), node.lineno

    def _is_wired(self, attribute: str, value: ast.expr) -> bool:
        match value:
            case ast.Lambda() | ast.Call(func=ast.Name("partial")):
                return True
            case ast.Call(func=ast.Name(name)) if name in self._collaborators:
                return True
            case ast.Name(name) | ast.Attribute(attr=name):
                is_function = name in self._functions and name not in self._fields
                return is_function or attribute in self._holders
        return False


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(each) for each in function.decorator_list)


def _is_value(node: ast.ClassDef) -> bool:
    """Whether objects of a class only hold values."""
    about = [*node.decorator_list, *node.bases]
    return any(_VALUES.search(ast.unparse(each)) for each in about)


def _annotations(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the annotated attributes of a class, and those that take an annotated argument of `__init__`."""
    for child in ast.walk(node):
        match child:
            case ast.AnnAssign(target=ast.Name(name) | ast.Attribute(attr=name), annotation=kind):
                yield name, ast.unparse(kind)


# --- the list


def read_list(file: Path = LIST) -> Counter[str]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    rows = (line.rsplit(" x", 1) for line in lines if not line.startswith("#"))
    return Counter({name: int(count) for name, count in rows})


def text_of(counts: Mapping[str, int]) -> str:
    rows = (f"{name} x{counts[name]}" for name in sorted(counts))
    return "\n".join(["# Offences that were there when their rule came: `python -m tools.offences`.", *rows, ""])


def problems(now: Sequence[Offence], listed: Counter[str]) -> Iterator[str]:
    """Yield the places of each offence that has become more frequent."""
    counts = Counter(name for name, _, _ in now)
    for name in sorted(counts - listed):
        places = ", ".join(f"{file}:{line}" for each, file, line in now if each == name)
        yield f"{name}: {counts[name]} places, {listed[name]} are listed in tools/offences.txt: {places}"


def main(arguments: list[str]) -> int:
    now = list(offences(Product()))
    if arguments not in ([], ["--write"]):
        print(*(f"{file}:{line}: {name}" for name, file, line in now if arguments[0] in name), sep="\n")
        return 0
    counts, listed = Counter(name for name, _, _ in now), read_list()
    new = list(problems(now, listed))
    print(*new, sep="\n", end="\n" if new else "")
    if arguments == ["--write"] and not new:
        LIST.write_text(text_of(counts), encoding="utf-8")
    elif gone := sorted(listed - counts):
        print(f"no longer there; `python -m tools.offences --write` strikes them: {', '.join(gone)}")
    return 1 if new or (listed - counts and not arguments) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
