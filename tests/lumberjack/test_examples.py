"""The examples of Lumberjack give what they say."""

import doctest
import importlib
import re

from penstock.lumberjack import Receiver, Sender

MODULES = ("_event", "_handler", "_options", "_receiver", "_sender")


def test_the_examples_in_docstrings():
    names = [*(f"penstock.lumberjack.{name}" for name in MODULES), "penstock.aio.lumberjack"]
    names += ["penstock._lines", "penstock._positions"]
    for name in names:
        results = doctest.testmod(importlib.import_module(name))
        assert results.attempted > 0, name
        assert results.failed == 0, name


def test_the_page_about_operations(pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "operations-lumberjack.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], "operations-lumberjack.md", "exec"), {})  # noqa: S102 - the documentation's own


def test_the_page_about_operations_names_every_metric(pytestconfig, tmp_path):
    import urllib.request

    with Receiver(metrics="127.0.0.1:0", spool=tmp_path / "spool") as receiver, Sender(receiver.address) as sender:
        sender.send([{"n": 1}, {"n": 2}])
        with urllib.request.urlopen(f"http://{receiver.metrics_address}/metrics", timeout=20) as response:
            text = response.read().decode()
    assert "penstock_lumberjack_spool_events_total 2" in text.splitlines()
    assert f"penstock_lumberjack_spool_limit_bytes {10 << 30}" in text.splitlines()
    metrics = re.findall(r"^# TYPE penstock_lumberjack_(\w+) (\w+)$", text, re.MULTILINE)
    page = (pytestconfig.rootpath / "docs" / "operations-lumberjack.md").read_text()
    names = {f"{name}_total" if kind == "counter" else name for name, kind in metrics}
    assert len(names) >= 26
    assert {name for name in names if f"`{name}" not in page} == set()
