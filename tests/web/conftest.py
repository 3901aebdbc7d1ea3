"""A real Chromium, a real buffer, and writers that speak plain HTTP."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance" / "pimp"))

from pimp_http import Writer, serve

# What Chromium would ask of its makers, and what a process of root's needs.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]


@pytest.fixture(scope="session")
def buffer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("buffer")) as url:
        yield url


@pytest.fixture(scope="session")
def client(buffer: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=buffer, timeout=60) as client:
        yield client


@pytest.fixture
def writer(client: httpx.Client) -> Writer:
    return Writer(client)


@pytest.fixture(scope="module")
def browser():
    """A browser, for one file: Playwright's event loop runs for as long, and other tests start loops of their own."""
    found = os.environ.get("PENSTOCK_CHROMIUM")
    found = found or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("NOT TESTED: the page; there is no browser: `apt install chromium`, or PENSTOCK_CHROMIUM=PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def context(browser):
    context = browser.new_context()
    context.set_default_timeout(10_000)
    yield context
    context.close()


@pytest.fixture
def page(context):
    """A page on which nothing may go wrong unseen."""
    page = context.new_page()
    troubles = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: troubles.append(f"a dialog: {dialog.message}") or dialog.dismiss())
    yield page
    assert troubles == []


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("NOT TESTED: the module in Node; there is no Node: `apt install nodejs`")
    return found
