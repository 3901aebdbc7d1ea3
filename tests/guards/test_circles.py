"""Inside a crate no circle of files: what a file needs of others stands above or below it, not on both sides.

`rust_graph.py` says what counts as an arrow.
"""

from pathlib import Path

import pytest
from rust_graph import arrows, circles, crates


def test_no_crate_has_a_circle_of_files(repository, saw):
    files = 0
    targets = 0
    for crate, sources, graph in crates(repository):
        files += len(graph)
        targets += sum(map(len, graph.values()))
        lines = [
            f"{file.relative_to(sources)} -> {target.relative_to(sources)}: {', '.join(sorted(items))}"
            for circle in circles(graph)
            for file in circle
            for target, items in graph[file].items()
            if target in circle
        ]
        assert not lines, f"penstock-{crate} has a circle of files:\n" + "\n".join(lines)
    saw(files, "files of our crates", at_least=400)
    saw(targets, "arrows between them", at_least=1_500)


def test_the_largest_crate_has_at_most_a_fifth_of_all_lines(repository, saw):
    lines = {
        crate.name: sum(source.read_text().count("\n") for source in crate.rglob("*.rs"))
        for crate in sorted((repository / "crates").iterdir())
    }
    largest = max(lines, key=lambda crate: lines[crate])
    assert lines[largest] * 5 <= sum(lines.values()), f"{largest} has {lines[largest]} of {sum(lines.values())} lines"
    saw(sum(lines.values()), "lines of our crates", at_least=100_000)


CRATE = {
    "lib.rs": "mod top;\nmod below;\npub use below::Item;",
    "top.rs": "mod child;\nuse crate::below::{self, Item};\npub use self::child::Child;\n",
    "top/child.rs": "use super::Item;\npub struct Child(Item);",
    "below.rs": "pub struct Item;\n#[cfg(test)]\nmod tests {\n    use crate::top::Child;\n}\n",
}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        # The parent passes its child's type on, and does not use it.
        (
            {
                "top/child.rs": "use super::Parent;\npub struct Child(Parent);",
                "top.rs": CRATE["top.rs"] + "pub struct Parent;",
            },
            [],
        ),
        (
            {
                "top/child.rs": "use super::Parent;\npub struct Child;",
                "top.rs": CRATE["top.rs"] + "pub struct Parent(Child);",
            },
            [["top/child.rs", "top.rs"]],
        ),
        # Through a re-export.
        ({"below.rs": "use crate::top::Child;\npub struct Item;"}, [["below.rs", "top/child.rs"]]),
        # By a path in the code; not in a comment.
        (
            {"below.rs": "pub struct Item;\nfn make() { crate::top::child::Child::new(); }"},
            [["below.rs", "top/child.rs"]],
        ),
        ({"below.rs": "pub struct Item;\n// crate::top::child::Child\n"}, []),
    ],
)
def test_arrows_go_to_the_file_of_an_item(tmp_path: Path, changes, found):
    for name, text in (CRATE | changes).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [
        [str(file.relative_to(tmp_path)) for file in circle] for circle in circles(arrows(tmp_path / "lib.rs"))
    ] == found
