"""The documentation of parameters in docstrings of the Google, NumPy and Sphinx styles."""

import re

__all__ = ["parameter_docs"]

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params)\s*:?$")
_GOOGLE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY = re.compile(r"^(\w+)\s*(?::.*)?$")
_SPHINX = re.compile(r"^:param\s+(?:[\w\[\], |.]+\s+)?(\w+)\s*:\s*(.*)$")


def parameter_docs(doc: str | None, names: set[str]) -> dict[str, str]:
    """Return the documentation of the named parameters in ``doc``, a docstring cleaned by inspect.getdoc."""
    found: dict[str, list[str]] = {}
    inside, current, depth = False, "", 0
    for line in (doc or "").splitlines():
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if sphinx := _SPHINX.match(text):
            inside, current = False, sphinx[1]
            found[current] = [sphinx[2]]
        elif indent == 0 and _SECTION.match(text):
            inside, current = True, ""
        elif inside and text and set(text) != {"-"}:
            entry = _GOOGLE.match(text) if indent else _NUMPY.match(text)
            if entry and entry[1] in names and (not current or indent <= depth):
                current, depth = entry[1], indent
                found[current] = [entry[2]] if indent else []
            elif current and indent > depth:
                found[current].append(text)
            else:
                inside = indent > 0
    return {name: " ".join(part for part in parts if part) for name, parts in found.items() if name in names}
