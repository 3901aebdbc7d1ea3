"""The documents keep up with the code: every decision is written down, and none is cited that is not."""

import re

import pytest

DECISIONS = set(range(1, 22))
CITED = re.compile(r"\bdecisions? (\d+)(?:(?:,| and|-) ?(\d+))?")


@pytest.fixture(scope="module")
def decisions(repository) -> set[int]:
    page = (repository / "docs" / "protocols" / "pipestream.md").read_text()
    return {int(number) for number in re.findall(r"^(\d+)\. ", page, re.MULTILINE)}


def test_every_decision_is_documented(decisions, saw):
    assert decisions >= DECISIONS, f"docs/protocols/pipestream.md lacks {sorted(DECISIONS - decisions)}"
    saw(len(decisions), "decisions", at_least=21)


def test_the_code_cites_only_decisions_that_exist(tracked, saw):
    cited = []
    for path in tracked:
        if path.suffix == ".rs" and "pipestream" in path.as_posix():
            for match in CITED.finditer(path.read_text()):
                cited += [int(number) for number in match.groups() if number]
    wrong = set(cited) - DECISIONS
    assert not wrong, f"the code cites decisions {sorted(wrong)}, which are not there"
    saw(len(cited), "citations", at_least=20)


def test_every_option_of_the_pipestream_data_source_is_in_its_table(repository, saw):
    page = (repository / "docs" / "spark.md").read_text()
    parts = {"source": ('## The source "pipestream"', "## Splitting documents"), "sink": ("## The sink", "## Workers")}
    tables = {}
    for side, (start, end) in parts.items():
        lines = page[page.index(start) : page.index(end)].splitlines()
        tables[side] = " ".join(line.split("|")[1] for line in lines if line.startswith("| `"))
    read = re.compile(r"options\.[a-z_]+\(\s*\"(\w+)\"")
    names = 0
    for file, sides in (
        ("../_options.py", ("sink",)),
        ("peer.py", ("sink",)),
        ("rows.py", ("sink",)),
        ("listen.py", ("source",)),
        ("source.py", ("source",)),
        ("stream_reader.py", ("source",)),
    ):
        text = (repository / "python" / "penstock" / "spark" / "pipestream" / file).read_text()
        # The example in the docstring of a class is no option.
        found = set(read.findall(re.sub(r"^ *>>>.*$", "", text, flags=re.MULTILINE)))
        for side in sides:
            missing = [name for name in found if f"`{name}`" not in tables[side] and name != "path"]
            assert not missing, f"docs/spark.md lacks options of the {side}: {sorted(missing)}"
        names += len(found)
    saw(names, "options", at_least=20)


def test_links_between_the_pages_outside_the_site_lead_somewhere(repository, saw):
    """mkdocs checks those inside docs/."""
    links = 0
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (repository / name).read_text()):
            # A package index shows the README without the repository, so its links are absolute.
            target = target.removeprefix("https://github.com/penstock/penstock/blob/main/")
            if "://" not in target:
                assert (repository / target).exists(), f"{name} links to {target}, which is not there"
                links += 1
    saw(links, "links", at_least=3)
