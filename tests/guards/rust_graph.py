"""The files of a Rust crate and the arrows between them, read from its sources as text.

An arrow goes from a file to the file that defines an item which the first one names: by a `use`, or by a path in its
code (`super::item`, `child::item`). A re-export is followed to the definition, so a file that re-exports is no target.
These are no arrows: `mod x;`, a `pub use` of a name that the file does not use itself, the import of a module alone,
and the call of a method, which has no path. So a parent may declare its children and re-export from them while they
name its types; where the parent names types of theirs, too, it is a circle like any other. Tests are left out: files
and folders of that name, and each item behind `#[cfg(test)]`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_STRINGS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^\\'\n])'""", re.DOTALL
)
_USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.MULTILINE)
_MODULE = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", re.MULTILINE)
_TEST = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]")
_PATH = re.compile(r"(?<![\w:$])((?:crate|self|super|[a-z]\w*)(?:::\w+)+)")
_ITEM = re.compile(r"\b(?:struct|enum|union|trait|type|fn|const|static|mod)\s+(\w+)")


@dataclass
class Module:
    name: tuple[str, ...]
    file: Path
    code: str
    children: dict[str, "Module"] = field(default_factory=dict)
    parent: "Module | None" = None
    # Each name that a `use` brings in, with its path and whether it is passed on.
    uses: dict[str, tuple[list[str], bool]] = field(default_factory=dict)
    globs: list[tuple[list[str], bool]] = field(default_factory=list)
    items: set[str] = field(default_factory=set)


def _without_tests(code: str) -> str:
    """Cut out what `#[cfg(test)]` stands before: an item up to its semicolon or its closing brace."""
    while found := _TEST.search(code):
        depth = 0
        for index in range(found.end(), len(code)):
            letter = code[index]
            depth += (letter in "{([") - (letter in "})]")
            if depth == 0 and letter in "};":
                break
        code = code[: found.start()] + code[index + 1 :]
    return code


def _leaves(tree: str, prefix: list[str]) -> Iterator[tuple[list[str], str]]:
    """The paths of a `use`, and under which name each is known."""
    head, brace, rest = tree.strip().partition("{")
    if not brace:
        path, _, alias = head.partition(" as ")
        segments = prefix + [each.strip() for each in path.split("::") if each.strip()]
        if segments[-1] == "self" and len(segments) > 1:
            segments = segments[:-1]
        yield segments, alias.strip() or segments[-1]
        return
    inner = prefix + [each.strip() for each in head.split("::") if each.strip()]
    depth, start = 0, 0
    body = rest[: rest.rindex("}")]
    for index, letter in enumerate(body + ","):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if body[start:index].strip():
                yield from _leaves(body[start:index], inner)
            start = index + 1


def _load(file: Path, name: tuple[str, ...], parent: Module | None) -> Module:
    code = _without_tests(_STRINGS.sub(lambda found: '""' if '"' in found[0] else " ", file.read_text()))
    module = Module(name, file, code, parent=parent)
    for found in _USE.finditer(code):
        for path, known in _leaves(found[2], []):
            if known == "*":
                module.globs.append((path[:-1], found[1] is not None))
            elif known != "_":
                module.uses[known] = (path, found[1] is not None)
            else:
                module.uses[f"{path[-1]} as _"] = (path, False)
    module.code = _USE.sub("", code)
    module.items = set(_ITEM.findall(module.code))
    folder = file.parent if file.name in {"mod.rs", "lib.rs", "main.rs"} else file.with_suffix("")
    for child in _MODULE.findall(code):
        places = [place for place in (folder / f"{child}.rs", folder / child / "mod.rs") if place.is_file()]
        if places and "test" not in child:
            module.children[child] = _load(places[0], (*name, child), module)
    return module


def _resolve(module: Module, path: list[str], root: Module, seen: frozenset[int] = frozenset()) -> Module | None:
    """The module in which the item of a path stands, as it is read in `module`; None for another crate's."""
    here: Module | None = module
    first, rest = path[0], path[1:]
    if first == "crate":
        here = root
    elif first == "super":
        here = module.parent
    elif first != "self":
        if first not in module.children and first not in module.uses:
            return None
        rest = path
    while rest and here is not None:
        name, rest = rest[0], rest[1:]
        if name == "super":
            here = here.parent
        elif name in here.children:
            here = here.children[name]
        elif name in here.uses and id(here) not in seen:
            onward = here.uses[name][0]
            return _resolve(here, onward + rest if onward != [name, *rest] else [name], root, seen | {id(here)})
        elif name not in here.items:
            for onward, _ in here.globs:
                beyond = _resolve(here, onward, root, seen | {id(here)})
                if beyond is not None and (name in beyond.items or name in beyond.uses):
                    return _resolve(beyond, ["self", name, *rest], root, seen | {id(here)})
            return here
        else:
            return here
    return None  # A module alone.


def _modules(module: Module) -> Iterator[Module]:
    yield module
    for child in module.children.values():
        yield from _modules(child)


def arrows(top: Path) -> dict[Path, dict[Path, set[str]]]:
    """Each file of the crate whose `lib.rs` is `top`, and the files whose items it names, with the names."""
    root = _load(top, (), None)
    graph: dict[Path, dict[Path, set[str]]] = {}
    for module in _modules(root):
        targets = graph.setdefault(module.file, {})
        named = [
            path
            for known, (path, passed_on) in module.uses.items()
            if not passed_on or re.search(rf"\b{known.removeprefix('r#')}\b", module.code)
        ]
        named += [path.split("::") for path in _PATH.findall(module.code)]
        for path in named:
            target = _resolve(module, path, root)
            if target is not None and target.file != module.file:
                targets.setdefault(target.file, set()).add(path[-1])
        for path, passed_on in module.globs:
            if not passed_on and path[0] in {"crate", "self", "super"}:
                target = _resolve(module, [*path, "*"], root)
                if target is not None and target.file != module.file:
                    targets.setdefault(target.file, set()).add("*")
    return graph


def circles(graph: dict[Path, dict[Path, set[str]]]) -> list[list[Path]]:
    """The files that reach each other: the strongly connected components of more than one file (Tarjan)."""
    order: dict[Path, int] = {}
    low: dict[Path, int] = {}
    stack: list[Path] = []
    found: list[list[Path]] = []

    def visit(file: Path) -> None:
        order[file] = low[file] = len(order)
        stack.append(file)
        for target in graph.get(file, {}):
            if target not in order:
                visit(target)
                low[file] = min(low[file], low[target])
            elif target in stack:
                low[file] = min(low[file], order[target])
        if low[file] == order[file]:
            index = stack.index(file)
            component = stack[index:]
            del stack[index:]
            if len(component) > 1:
                found.append(sorted(component))

    for file in graph:
        if file not in order:
            visit(file)
    return found


def crates(repository: Path) -> Iterator[tuple[str, Path, dict[Path, dict[Path, set[str]]]]]:
    """Each of our crates that has a library: its name without the prefix, its sources, and its graph."""
    for top in sorted(repository.glob("crates/*/src/lib.rs")):
        yield top.parents[1].name.removeprefix("penstock-"), top.parent, arrows(top)
