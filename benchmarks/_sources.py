"""The sources of an environment's rules, as a digest that certificates hold.

A certificate whose digest differs from that of the sources is stale: `python -m benchmarks.certify`
makes it again. The digest covers the module of the class and all modules of `jaxenvs.envs` that it
imports, without comments, docstrings, and rendering.
"""

import ast
import functools
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "jaxenvs.envs"
Read = Callable[[str], str | None]  # the path of a file, relative to the root -> its text, if any


@functools.cache
def _read(path: str) -> str | None:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else None


def digest(module: str, read: Read = _read) -> str:
    """Returns the digest of `module` and of the modules of environments that it imports."""
    found: dict[str, ast.Module] = {}
    queue = [module]
    while queue:
        name = queue.pop()
        if name in found or (tree := _parse(name, read)) is None:
            continue
        found[name] = tree
        queue += _imported(tree)
    whole = hashlib.sha256()
    for name in sorted(found):
        whole.update(f"{name} {_dump(found[name])}\n".encode())
    return whole.hexdigest()[:16]


def _dump(node: object) -> str:
    """Returns a text that is the same in all versions of Python, unlike that of `ast.dump`."""
    if isinstance(node, list):
        return f"[{' '.join(map(_dump, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
    return f"({type(node).__name__} {' '.join(f'{name}={_dump(value)}' for name, value in fields)})"


def _parse(name: str, read: Read) -> ast.Module | None:
    """Returns a module's tree, without docstrings; None for packages, classes, and functions."""
    text = read(name.replace(".", "/") + ".py")
    if text is None or "rendering" in name:
        return None
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:]
            node.body = [part for part in node.body if getattr(part, "name", "") != "render"]
    return tree


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yields the names of modules, and of what is imported from them, in `jaxenvs.envs`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            yield f"{node.module}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith(PACKAGE))
