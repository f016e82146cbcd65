"""Read the marks of pytest from the sources of tests, without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator


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
