"""What a clone holds: no build products, no endless files, no unsafe code outside its places."""

import ast
import re

BUILT = {".a", ".class", ".dll", ".dylib", ".egg", ".jar", ".o", ".pyc", ".pyd", ".rlib", ".rmeta", ".so", ".whl"}
BUILT_FOLDERS = {"target", "dist", "site", ".venv", "__pycache__", "demo-output", "spark-warehouse"}
LARGEST = 1_000_000
LONGEST_FILE = 600
LONGEST_FUNCTION = 60
WHY_LONG = re.compile(r"longer than 600 lines", re.IGNORECASE)
GENERATED = "generated"
# Descriptors that come as numbers, and shared memory.
UNSAFE_PLACES: set[str] = {"crates/penstock-vgi-net/src/mapping.rs", "crates/penstock-vgi-net/src/raw.rs"}


def test_no_build_products_are_committed(repository, tracked, saw):
    for path in tracked:
        name = path.relative_to(repository)
        assert path.suffix not in BUILT, f"{name} is built, not written"
        assert not BUILT_FOLDERS & set(name.parts), f"{name} lies in a folder of build products"
        assert path.stat().st_size <= LARGEST, f"{name} has more than {LARGEST} bytes"
    saw(len(tracked), "files", at_least=60)


def test_long_files_say_why(repository, tracked, saw):
    sources = [path for path in tracked if path.suffix in {".rs", ".py", ".pyi"} and GENERATED not in path.parts]
    for path in sources:
        lines = path.read_text().splitlines()
        if len(lines) > LONGEST_FILE:
            assert WHY_LONG.search("\n".join(lines[:30])), (
                f"{path.relative_to(repository)} has {len(lines)} lines; split it, "
                "or say at its top why it is longer than 600 lines"
            )
    saw(len(sources), "source files", at_least=60)


def test_python_functions_are_short(repository, tracked, saw):
    functions = 0
    for path in tracked:
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                # Its parameters are a list, however many lines they take.
                first = node.body[0].lineno
                lines = (node.end_lineno or first) - first + 1
                assert lines <= LONGEST_FUNCTION, f"{path.relative_to(repository)}: {node.name} has {lines} lines"
    saw(functions, "functions", at_least=40)


def test_unsafe_code_stays_in_its_places(repository, tracked, saw):
    files = 0
    for path in tracked:
        name = path.relative_to(repository).as_posix()
        if path.suffix != ".rs" or name in UNSAFE_PLACES:
            continue
        files += 1
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//")[0]
            assert not re.search(r"\bunsafe\b|\ballow\(.*unsafe_code", code), f"{name}:{number} has unsafe code"
    saw(files, "Rust files", at_least=40)


def test_the_locks_name_no_index_and_agree(repository, saw):
    pinned = {}
    for name in ("dev", "run"):
        lock = (repository / "requirements" / f"{name}.txt").read_text()
        assert "://" not in lock
        assert not re.search(r"^ *--(?!hash)", lock, re.MULTILINE)
        pinned[name] = set(re.findall(r"^([a-z0-9-]+==\S+) \\$", lock, re.MULTILINE))
        assert lock.count("==") == len(pinned[name])
    # One environment has both, one after the other.
    assert pinned["run"] <= pinned["dev"]
    saw(len(pinned["dev"]), "pinned packages", at_least=40)
    saw(len(pinned["run"]), "pinned packages of the demo", at_least=10)
