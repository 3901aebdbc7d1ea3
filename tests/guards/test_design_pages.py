"""The pages of design name files, types, functions and constants of today.

A page says in a paragraph where its files lie: "File names are relative to `FOLDER`. A word in front names another
folder: `core` is `FOLDER`, ..". So `core limits.rs` is a file of the core. A path from the root of the repository may
stand in its place. The page of the architecture has no such paragraph: a path there is the end of a file's path.
"""

import re
from itertools import pairwise
from pathlib import Path

import pytest

SPAN = re.compile(r"`([^`]+)`")
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:(\w+) )?([\w./-]+\.(?:rs|pyi?|js|css|html|txt|toml))")
FOLDER = re.compile(r"(?:crates|tests|python|docs|scripts|benches)/[\w./-]+")
# `Type`, `function`, `Type::method`, `Class.method`.
ITEM = re.compile(r"[A-Za-z_]\w*(?:(?:::|\.)[A-Za-z_]\w*)*")
WHERE = re.compile(r"^File names are relative to .*?^$", re.MULTILINE | re.DOTALL)
CONSTANT = re.compile(r"\b_?[A-Z][A-Z0-9_]+\b")


class Page:
    """The code spans of a page, and the files that it means by them."""

    def __init__(self, text: str, tracked: set[str]) -> None:
        self.text = BLOCK.sub("", text)
        self.tracked = tracked
        where = WHERE.search(self.text)
        default, *pairs = SPAN.findall(where[0]) if where else [""]
        self.folders = {"": default} | dict(zip(pairs[::2], pairs[1::2], strict=True))

    def files(self, span: str) -> list[str] | None:
        """Return the files that a code span may mean; none: it names no file."""
        match = FILE.fullmatch(span)
        if not match:
            return None
        word, path = match[1] or "", match[2]
        if not self.folders[""]:
            return sorted(name for name in self.tracked if f"/{name}".endswith(f"/{path}"))
        if word not in self.folders:
            return []
        return [name for name in (f"{self.folders[word]}/{path}", path) if name in self.tracked][:1]

    def named(self) -> list[tuple[str, list[str]]]:
        """Return each span that names a file, with the files."""
        found = [(span, self.files(span)) for span in SPAN.findall(self.text)]
        return [(span, files) for span, files in found if files is not None]

    def items(self) -> list[tuple[str, list[str], str]]:
        """Return what stands directly behind the name of a file, and what should be in that file."""
        spans = list(SPAN.finditer(self.text))
        found = []
        for before, item in pairwise(spans):
            between = self.text[before.end() : item.start()]
            files = self.files(before[1])
            if files and between and not between.strip() and ITEM.fullmatch(item[1]):
                found.append((before[1], files, item[1]))
        return found

    def constants(self) -> list[tuple[str, list[str], str]]:
        """Return the constants in the rows of tables with the columns "constant" and "file"."""
        found, columns = [], None
        for line in self.text.splitlines():
            cells = [cell.strip() for cell in line.split("|")] if line.startswith("|") else None
            if cells is None:
                columns = None
            elif "constant" in cells and "file" in cells:
                columns = cells.index("constant"), cells.index("file")
            elif columns is not None:
                constant, file = cells[columns[0]], cells[columns[1]]
                files = [name for span in SPAN.findall(file) for name in self.files(span) or ()]
                names = {name for span in SPAN.findall(constant) for name in CONSTANT.findall(span)}
                found += [(file, files, name) for name in sorted(names)]
        return found


@pytest.fixture(scope="module")
def pages(repository: Path, tracked: list[Path]) -> dict[str, Page]:
    names = {path.relative_to(repository).as_posix() for path in tracked}
    docs = [repository / "docs" / "architecture.md", *sorted((repository / "docs" / "design").glob("*.md"))]
    return {path.relative_to(repository).as_posix(): Page(path.read_text(), names) for path in docs}


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def missing(repository: Path, files: list[str], item: str) -> set[str]:
    """Return which words of an item none of the files has."""
    least = [words(item) - words((repository / file).read_text()) for file in files]
    return min(least, key=len, default=words(item))


def test_the_files_and_folders_that_the_pages_name_are_there(pages, repository, saw):
    files = folders = 0
    for name, page in pages.items():
        for span, found in page.named():
            assert found, f"{name}: no file is called `{span}`"
            files += 1
        for span in SPAN.findall(page.text):
            if FOLDER.fullmatch(span):
                assert (repository / span).exists(), f"{name}: nothing is called `{span}`"
                folders += 1
    saw(files, "names of files", at_least=400)
    saw(folders, "names of folders", at_least=20)


def test_what_a_page_names_with_a_file_is_in_the_file(pages, repository, saw):
    items = 0
    for name, page in pages.items():
        for span, files, item in page.items():
            lost = missing(repository, files, item)
            assert not lost, f"{name}: `{span}` has no {', '.join(sorted(lost))}, as in `{item}`"
            items += 1
    saw(items, "items named with their file", at_least=150)


def test_the_constants_of_a_table_are_in_its_files(pages, repository, saw):
    constants = 0
    for name, page in pages.items():
        for row, files, constant in page.constants():
            assert any(constant in words((repository / file).read_text()) for file in files), (
                f"{name}: {constant} is not in {row}"
            )
            constants += 1
    saw(constants, "constants in tables", at_least=100)


EXAMPLE = """
File names are relative to `crates/a/src`. A word in front names another folder: `core` is
`crates/b/src`.

`x.rs` `Item`, `core x.rs`
`make` and `y.rs` `lost`, `z x.rs`. `crates/b/src/x.rs`, `x.rs`, `Item`

```
`none.rs`
```

| bounded | constant | value | file |
|---|---|---|---|
| it | `MOST`, `Of::LEAST` | 1 | `core x.rs` |
"""


def test_a_page_says_where_its_files_lie():
    page = Page(EXAMPLE, {"crates/a/src/x.rs", "crates/b/src/x.rs"})
    here, core = ["crates/a/src/x.rs"], ["crates/b/src/x.rs"]
    assert page.named() == [
        ("x.rs", here),
        ("core x.rs", core),
        ("y.rs", []),
        ("z x.rs", []),
        ("crates/b/src/x.rs", core),
        ("x.rs", here),
        ("core x.rs", core),
    ]
    assert page.items() == [("x.rs", here, "Item"), ("core x.rs", core, "make")]
    assert page.constants() == [("`core x.rs`", core, "LEAST"), ("`core x.rs`", core, "MOST")]
    # Without that paragraph a name is the end of a path.
    assert Page("`src/x.rs` and `c/x.rs`", page.tracked).named() == [("src/x.rs", here + core), ("c/x.rs", [])]
