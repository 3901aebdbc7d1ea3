"""The examples of docs/vgi.md give what the page says."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "vgi.md"
_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_about_arrow_functions(tmp_path: Path) -> None:
    blocks = _BLOCK.findall(_PAGE.read_text())
    (service,) = [block for kind, block in blocks if block.startswith("# calculator.py")]
    (tmp_path / "calculator.py").write_text(service)
    ran = 0
    for (kind, block), (behind, expected) in pairwise(blocks):
        if (kind, behind) == ("python", "text"):
            done = subprocess.run(
                [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.stdout == expected, done.stderr
            ran += 1
    assert ran == 5
