"""The words of the documentation, the help texts and the docstrings are those of docs/glossary.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

FOREIGN = {
    r"\boctets?\b": "bytes",
    r"\b(?:whoever|whomever|whom)\b": "the client, the caller, ...",
    r"\b(?:nobody|somebody|anybody)\b": "no client, a process, ...",
    r"\bfor ever\b": "indefinitely",
    r"\banew\b": "again",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bbeside\b": "next to",
    r"\b(?:thereof|wherein|whence|hereby|thereby)\b": "a pronoun or a noun",
    r"\bset aside\b": "deferred",
    r"\bt(?:ake|akes|ook|aken|aking) (?:it |them |documents |a document )?apart\b": "split",
    r"\bput(?:s|ting)? (?:it |them |documents )?together\b": "reassemble",
    r"\btime-outs?\b": "timeout",
    r"\btruth values?\b": "bool",
}
FIRST = re.compile(r"(?:Give|Gives|Take|Takes|Say|Says|Refuse|Refuses|Make sure|Have)\b")
CODE = re.compile(r"```.*?```|`+[^`]+`+|application/octet-stream", re.DOTALL)
GENERATED = {"benchmarks.md", "scaling.md"}


def _prose(text: str) -> str:
    """Return the text without code, which has the names of its program."""
    return CODE.sub("", text)


def _foreign(text: str) -> Iterator[str]:
    prose = _prose(text)
    for pattern, better in FOREIGN.items():
        for found in re.finditer(pattern, prose, re.IGNORECASE):
            around = " ".join(prose[max(0, found.start() - 40) : found.end() + 40].split())
            yield f"{found[0]!r} (better: {better}) in ...{around}..."


def _docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Return the docstrings of a file, and the texts below its attributes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for child in node.body:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and type(child.value.value) is str:
                yield f"{path.name}:{child.lineno}", child.value.value


def test_the_documentation_has_the_words_of_the_glossary(repository, saw):
    pages = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    pages = [page for page in pages if page.name not in {*GENERATED, "glossary.md"}]
    wrong = [f"{page.relative_to(repository)}: {each}" for page in pages for each in _foreign(page.read_text())]
    assert not wrong, "\n".join(wrong)
    saw(len(pages), "pages", at_least=25)


def test_docstrings_have_the_words_of_the_glossary(repository, saw):
    files = [path for suffix in ("py", "pyi") for path in (repository / "python").rglob(f"*.{suffix}")]
    texts = [each for path in files for each in _docstrings(path)]
    wrong = [f"{where}: {each}" for where, text in texts for each in _foreign(text)]
    wrong += [f"{where}: begins with {text.split()[0]!r}" for where, text in texts if FIRST.match(text)]
    assert not wrong, "\n".join(wrong)
    saw(len(texts), "docstrings", at_least=2_000)


def test_public_docstrings_cite_no_decision(repository, saw):
    """A decision is in a file that users do not have."""
    texts = [each for path in (repository / "python").rglob("*.py") for each in _docstrings(path)]
    wrong = [f"{where}: {found[0]}" for where, text in texts if (found := re.search(r"\bdecisions? \d+", text))]
    assert not wrong, "\n".join(wrong)
    saw(len(texts), "docstrings", at_least=2_000)


def test_help_has_the_words_of_the_glossary(saw):
    from penstock.cli import app

    texts = list(_help(get_command(app), "penstock"))
    wrong = [f"{where}: {each}" for where, text in texts for each in _foreign(text)]
    assert not wrong, "\n".join(wrong)
    saw(len(texts), "help texts", at_least=200)


def _help(command: Any, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    for option in command.params:
        yield f"{name} {option.name}", getattr(option, "help", None) or ""
    for below, child in getattr(command, "commands", {}).items():
        yield from _help(child, f"{name} {below}")
