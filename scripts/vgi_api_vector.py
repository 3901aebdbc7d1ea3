"""Makes ``tests/vgi/api.json`` from the text that lists the public names of vgi_rpc with their signatures.

``python scripts/vgi_api_vector.py TEXT > tests/vgi/api.json``; a line of the file for each name.
"""

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

_PARAMETER = re.compile(r"(\*{0,2}\w+|[*/])(?:: (?:'[^']*'|\"[^\"]*\"|.*?))?(?: ?= ?(.*))?", re.DOTALL)


def split(text: str) -> list[str]:
    """Divide at the commas that are in no bracket and no quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for at, each in enumerate(text):
        if quote:
            quote = "" if each == quote else quote
        elif each in "'\"":
            quote = each
        elif each in "([{<":
            depth += 1
        elif each in ")]}>" and text[at - 1] != "-":
            depth -= 1
        elif each == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def default(text: str | None) -> list[Any]:
    """Give a default: nothing, its value, the name of an enum's member, or that there is one."""
    if text is None:
        return []
    member = re.fullmatch(r"<\w+\.(\w+): .*>", text.strip())
    if member is not None:
        return [{"member": member[1]}]
    try:
        return [{"value": ast.literal_eval(text.strip())}]
    except (SyntaxError, ValueError):
        return [{"some": True}]


def parameters(text: str) -> list[list[Any]]:
    """Give a signature's parameters: name, "p" or "k" for by keyword alone, and the default."""
    found: list[list[Any]] = []
    kind = "p"
    for part in split(text):
        matched = _PARAMETER.fullmatch(part)
        if matched is None:
            raise ValueError(f"not understood: {part!r}")
        name = matched[1]
        if name.startswith("*"):
            kind = "k"
        elif name not in ("self", "cls", "/"):
            # One that its function does not use may have a line before its name.
            found.append([name.lstrip("_"), kind, *default(matched[2])])
    return found


def signature(line: str) -> list[list[Any]]:
    """Give the parameters of a line that has ``(...) ->`` or ends with ``)``."""
    inner = line[line.index("(") + 1 :]
    depth, quote = 1, ""
    for at, each in enumerate(inner):
        if quote:
            quote = "" if each == quote else quote
        elif each in "'\"":
            quote = each
        elif each in "([{":
            depth += 1
        elif each in ")]}":
            depth -= 1
            if not depth:
                return parameters(inner[:at])
    raise ValueError(f"not understood: {line!r}")


def member(line: str, entry: dict[str, Any]) -> None:
    """Add what a line below a class says."""
    if line.startswith("@dataclass"):
        entry["kind"] = "dataclass"
    elif line.startswith("members: "):
        entry["members"] = ast.literal_eval(line.removeprefix("members: "))
    elif line.startswith("__init__("):
        entry["methods"]["__init__"] = signature(line)
    elif line.startswith("@property "):
        entry["attributes"].append(line.split()[1])
    elif re.match(r"(abstract |@classmethod |@staticmethod )?(def )?\w+\(", line):
        name = re.sub(r"^(abstract |@classmethod |@staticmethod )?(def )?", "", line).partition("(")[0]
        entry["methods"][name] = signature(line)
    elif entry["kind"] == "dataclass" and (field := re.fullmatch(r"(\w+): .*?(?: =(.*))?", line)):
        entry["fields"].append([field[1], *default(field[2])])
    else:
        entry["attributes"].append(line.partition(" ")[0])


def read(text: str) -> list[dict[str, Any]]:
    """Give an entry for each name."""
    entries: list[dict[str, Any]] = []
    module = ""
    for line in text.splitlines():
        if heading := re.match(r"#### vgi_rpc\.?(\w*)(.*)", line):
            module = heading[1]
            # Names that the top has as well.
            again = re.findall(r"'(\w+)'", heading[2])
            entries += [{"module": module, "name": name, "kind": "again"} for name in again]
        elif line.startswith("    ") and line.strip():
            member(line.strip(), entries[-1])
        elif found := re.match(r"class (\w+)\(", line):
            entry: dict[str, Any] = {
                "module": module,
                "name": found[1],
                "kind": "class",
                "fields": [],
                "methods": {},
                "attributes": [],
            }
            entries.append(entry)
        elif found := re.match(r"def (\w+)\(", line):
            entries.append({"module": module, "name": found[1], "kind": "function", "parameters": signature(line)})
        elif found := re.match(r"(\w+) = (.*)", line):
            entry = {"module": module, "name": found[1], "kind": "constant"}
            value = default(found[2])[0].get("value")
            entry |= {} if value is None else {"value": value if isinstance(value, str) else value.decode()}
            entries.append(entry)
    return entries


if __name__ == "__main__":
    said = read(Path(sys.argv[1]).read_text())
    print("[\n" + ",\n".join(json.dumps(each) for each in said) + "\n]")
