"""The sources of an environment's rules, as a digest that certificates hold.

A certificate whose digest differs from that of the sources is stale: `python -m benchmarks.certify`
makes it again. The digest covers the module of the class and all modules of `jaxenvs.envs` and
`jaxenvs.physics.box2d` that it imports, without comments, docstrings, rendering, and imports of
other modules, which may move. That of a certificate of MJX covers the modules of this engine, too;
the tests compare every task in C MuJoCo with its reference.
"""

import ast
import functools
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MJX = "jaxenvs.physics.mjx"
FOLLOWED = "jaxenvs.envs", "jaxenvs.physics.box2d", MJX
Read = Callable[[str], str | None]  # the path of a file, relative to the root -> its text, if any


@functools.cache
def _read(path: str) -> str | None:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else None


def digest(module: str, read: Read = _read, *, engine: str = "c") -> str:
    """Returns the digest of `module` and of the modules of environments that it imports."""
    found: dict[str, str] = {}
    queue = [module, MJX] if engine == "mjx" else [module]
    while queue:
        name = queue.pop()
        text = None if "rendering" in name else read(name.replace(".", "/") + ".py")
        if name not in found and text is not None:  # not a package, class, or function
            found[name], imported = _rules(text)
            queue += imported
    whole = hashlib.sha256()
    for name in sorted(found):
        whole.update(f"{name} {found[name]}\n".encode())
    return whole.hexdigest()[:16]


@functools.cache
def _rules(text: str) -> tuple[str, list[str]]:
    """Returns the code of a module without docstrings and pictures, and what it imports."""
    tree = _Followed().visit(ast.parse(text))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:]
            node.body = [part for part in node.body if getattr(part, "name", "") != "render"]
    return _dump(tree), [*_imported(tree)]


def _dump(node: object) -> str:
    """Returns a text that is the same in all versions of Python, unlike that of `ast.dump`."""
    if isinstance(node, list):
        return f"[{' '.join(map(_dump, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
    return f"({type(node).__name__} {' '.join(f'{name}={_dump(value)}' for name, value in fields)})"


class _Followed(ast.NodeTransformer):
    """Removes imports of modules that the digest does not follow."""

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> ast.AST | None:
        return node if any(_names(node)) else None

    visit_ImportFrom = visit_Import


def _imported(tree: ast.AST) -> Iterator[str]:
    """Yields the names of modules to follow, and of what is imported from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _names(node)


def _names(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module}", *(f"{node.module}.{name}" for name in names)]
    yield from (name for name in names if name.startswith(FOLLOWED))
