"""kill -9 of a server and its sender with their sessions on disk, by the drill of `make drill-pipestream`, in short."""

import importlib.util
import os
import random
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from samples import repeated

KILLS = 50 if os.environ.get("PENSTOCK_LONG_TESTS") else 6


@pytest.fixture(scope="module")
def script(request: pytest.FixtureRequest) -> ModuleType:
    path = request.config.rootpath / "scripts" / "drill_pipestream.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def corpus(folder: Path, chance: random.Random) -> list[Path]:
    """Make archives with parts of all sizes, some twice under the same name."""
    folder.mkdir()
    documents = []
    for number in range(4):
        documents.append(folder / f"archive-{number}.zip")
        names = [f"part-{part // 2 if part % 10 == 0 else part}" for part in range(150)]
        with repeated(names), zipfile.ZipFile(documents[-1], "w") as archive:
            for name in names:
                with archive.open(zipfile.ZipInfo(name), "w") as file:
                    file.write(chance.randbytes(chance.choice((0, 100, 5_000, 70_000))))
    return documents


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_lost_and_nothing_stored_twice(script: ModuleType, tmp_path: Path) -> None:
    documents = corpus(tmp_path / "documents", random.Random(4))
    (tmp_path / "work").mkdir()
    account = script.drill(tmp_path / "work", documents, kills=KILLS, seed=9, pause=1.5)
    found = (account.unverified, account.missing, account.twice, account.after_the_end)
    assert found == ([], [], [], 0), account.table()
    assert len(account.kills) == KILLS
    # At least the round that was under way at the end; each has all documents, and their parts.
    assert account.runs >= 1
    assert account.documents == 4 * account.runs
    assert account.parts == 4 * 150 * account.runs
    assert all(kill.again <= kill.window for kill in account.kills), account.table()
