"""The buffer's page in a real browser: a job as it arrives, whatever happens to the browser meanwhile."""

import base64
import struct
import zlib
from urllib.parse import urlencode

import pytest
from pimp_http import Writer

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture
def show(page, buffer):
    def show(writer: Writer, key: str | None = None):
        asked = {"job": writer.job} | ({"key": key} if key else {})
        page.goto(f"{buffer}/#{urlencode(asked)}")
        return page

    return show


@pytest.fixture
def expect():
    from playwright.sync_api import expect

    return expect


def state(page, expect, name: str) -> None:
    expect(page.locator("#state")).to_have_attribute("data-state", name, timeout=10_000)


def png(width: int, height: int) -> bytes:
    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = b"".join(bytes(1 + width) for _ in range(height))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


def test_text_is_shown_as_it_comes_and_never_as_html(show, writer, expect):
    writer.begin("text/html", contentLength=len(EVIL) + 9)
    page = show(writer)
    state(page, expect, "active")
    writer.write(EVIL)
    expect(page.locator("#payload pre")).to_have_text(EVIL)
    assert page.locator("#payload img, #payload script").count() == 0
    assert 0.8 < page.locator("#progress").evaluate("bar => bar.position") < 1
    writer.end("é and end")
    state(page, expect, "failed")  # é is 2 bytes: contentLength was not the truth
    assert "CORRUPT" in page.locator("#state").inner_text()


def test_the_checksum_is_checked_and_the_payload_can_be_saved(show, writer, expect, tmp_path):
    writer.begin("text/plain; charset=utf-8")
    writer.write("one\n")
    page = show(writer)
    writer.end("two\n")
    state(page, expect, "completed")
    with page.expect_download() as download:
        page.locator("#save").click()
    assert download.value.suggested_filename == f"{writer.job}.txt"
    download.value.save_as(tmp_path / "saved")
    assert (tmp_path / "saved").read_text() == "one\ntwo\n"
    other = Writer(writer.client)
    other.begin("text/plain")
    other.write("not what was hashed", done=True, sha256="0" * 64)
    state(show(other), expect, "failed")
    assert "SHA-256" in page.locator("#state").inner_text()


@pytest.mark.parametrize(
    ("content_type", "values", "rows"),
    [
        ("text/csv", ['a,b\r\n1,"x ""y"', '" z"\n2,"<b>\n', 'c"\n'], [["1", 'x "y" z'], ["2", "<b>\nc"]]),
        ("text/tab-separated-values", ["a\tb\n1\t2\n"], [["1", "2"]]),
        ("application/x-ndjson", ['{"a":1,"b":"x"}\n{"a":', '2,"b":{"c":null}}\n'], [["1", "x"], ["2", '{"c":null}']]),
        ("application/json", ['[{"a":1,"b":"x"},', '{"b":"y","a":2}]'], [["1", "x"], ["2", "y"]]),
    ],
)
def test_rows_are_shown_as_a_table(show, writer, expect, content_type, values, rows):
    writer.begin(content_type)
    writer.write(*values)
    page = show(writer)
    if content_type != "application/json":
        expect(page.locator("#payload tbody tr").first).to_be_visible()
    writer.end()
    state(page, expect, "completed")
    assert page.locator("#payload th").all_text_contents() == ["a", "b"]
    found = [row.locator("td").all_text_contents() for row in page.locator("#payload tbody tr").all()]
    assert found == rows


@pytest.mark.parametrize(
    ("content_type", "value", "table"),
    [
        ("text/csv", "a,a\n1,2\n3,4,5\n", [["a", "a", "column 3"], ["1", "2"], ["3", "4", "5"]]),
        (
            "application/x-ndjson",
            '{"a":9007199254740993,"b":1e400,"b":1.0}\n',
            [["a", "b", "b (2)"], ["9007199254740993", "1e400", "1.0"]],
        ),
    ],
)
def test_names_that_come_twice_and_numbers_are_shown_as_written(show, writer, expect, content_type, value, table):
    writer.begin(content_type)
    writer.end(value)
    page = show(writer)
    state(page, expect, "completed")
    rows = page.locator("#payload tr").all()
    assert [row.locator("th, td").all_text_contents() for row in rows] == table


def test_json_is_shown_indented_and_what_is_none_as_it_came(show, writer, expect):
    for text, shown in [('{"a": [1, "<b>"]}', '{\n  "a": [\n    1,\n    "<b>"\n  ]\n}'), ('{"a": ', '{"a": ')]:
        job = Writer(writer.client)
        job.begin("application/json")
        job.end(text)
        page = show(job)
        state(page, expect, "completed")
        assert page.locator("#payload pre").text_content() == shown


def test_json_is_shown_as_it_is_written(show, writer, expect):
    writer.begin("application/json")
    writer.end('{"id":9007199254740993,"a":[1.0,1e400],"a":"x\\u00e9"}')
    page = show(writer)
    state(page, expect, "completed")
    shown = '{\n  "id": 9007199254740993,\n  "a": [\n    1.0,\n    1e400\n  ],\n  "a": "xé"\n}'
    expect(page.locator("#payload pre")).to_have_text(shown, use_inner_text=True)


def test_columns_beyond_a_bound_are_left_out_at_little_cost(show, writer, expect):
    writer.begin("application/x-ndjson")
    writer.end("".join(f'{{"key{row}":{row}}}\n' for row in range(3_000)))
    page = show(writer)
    state(page, expect, "completed")
    assert page.locator("#payload th").count() == 100
    assert "Columns above 100 are not shown" in page.locator("#payload").inner_text()


def test_images_are_shown_and_scripts_in_them_do_not_run(show, writer, expect):
    image = png(40, 30)
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><script>alert(1)</script></svg>'
    for kind, data in [("image/png", image), ("image/svg+xml", svg)]:
        job = Writer(writer.client)
        job.begin(kind, "base64")
        text = base64.b64encode(data).decode()
        job.write(text[:44])
        job.end(text[44:])
        page = show(job)
        state(page, expect, "completed")
        shown = page.locator("#payload img")
        shown.evaluate("image => image.decode()")
        assert shown.evaluate("image => [image.naturalWidth, image.naturalHeight]") == [40, 30]


def test_a_job_that_failed_and_one_that_may_not_be_read_say_so(show, client, expect):
    failed = Writer(client)
    failed.begin("text/plain")
    failed.write("", done=True, error=f"no more {EVIL}")
    page = show(failed)
    state(page, expect, "failed")
    assert EVIL in page.locator("#state").inner_text()
    guarded = Writer(client, read_key="reader+1_&%41")
    guarded.begin("text/plain")
    guarded.end("secret")
    state(show(guarded), expect, "failed")
    assert "UNAUTHORIZED" in page.locator("#state").inner_text()
    state(show(guarded, guarded.read_key), expect, "completed")


def test_a_reload_goes_on_behind_the_last_chunk(show, writer, expect):
    writer.begin("text/plain")
    writer.write("one ", "two ", "three ")
    page = show(writer)
    expect(page.locator("#payload pre")).to_have_text("one two three ")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "from=" in request.url else None)
    page.reload()
    writer.write("four ")
    expect(page.locator("#payload pre")).to_have_text("one two three four ")
    writer.end("five")
    state(page, expect, "completed")
    assert page.locator("#payload pre").text_content() == "one two three four five"
    assert "from=4" in asked[0], asked


def test_a_browser_that_was_offline_goes_on(show, context, writer, expect):
    writer.begin("text/plain")
    writer.write("before ")
    page = show(writer)
    expect(page.locator("#payload pre")).to_have_text("before ")
    context.set_offline(True)
    expect(page.locator("#state")).to_have_text("offline")
    writer.write("meanwhile ")
    context.set_offline(False)
    expect(page.locator("#payload pre")).to_have_text("before meanwhile ")
    writer.end("after")
    state(page, expect, "completed")


def test_a_slow_line_shows_what_is_there(show, context, page, writer, expect):
    devtools = context.new_cdp_session(page)
    slow = {"offline": False, "latency": 200, "downloadThroughput": 100_000, "uploadThroughput": 100_000}
    devtools.send("Network.enable")
    devtools.send("Network.emulateNetworkConditions", slow)
    piece = base64.b64encode(zlib.compress(bytes(range(256)) * 150, 0)).decode()[:40_000]
    writer.begin("text/plain", contentLength=8 * len(piece))
    page.add_init_script(
        "addEventListener('DOMContentLoaded', () => {"
        " const bar = document.getElementById('progress'); globalThis.seen = [];"
        " new MutationObserver(() => seen.push(bar.position)).observe(bar, {attributes: true}); })"
    )
    show(writer)
    state(page, expect, "active")
    for _ in range(7):
        writer.write(piece)
    writer.end(piece)
    state(page, expect, "completed")
    steps = [step for step in page.evaluate("seen") if 0 < step < 1]
    assert steps == sorted(steps)
    assert len(set(steps)) >= 2, steps


def test_cancelling_reaches_the_writer(show, client, expect):
    writer = Writer(client, read_key="reader")
    writer.begin("text/plain")
    page = show(writer, "reader")
    state(page, expect, "active")
    page.locator("#cancel").click()
    state(page, expect, "cancelled")
    assert writer.write("more").json()["cancelled"] is True
    assert not page.locator("#cancel").is_visible()


def test_the_page_asks_for_a_job_and_its_policy_lets_nothing_else_in(page, buffer, client, writer, expect):
    writer.begin("text/plain")
    writer.end("found")
    page.goto(f"{buffer}/")
    page.locator("input[name=job]").fill(writer.job)
    page.locator("form button").click()
    state(page, expect, "completed")
    answers = [client.get("/"), client.get("/")]
    policies = [answer.headers["content-security-policy"] for answer in answers]
    assert policies[0] != policies[1], "the number is new each time"
    for part in [
        "default-src 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "base-uri 'none'",
    ]:
        assert part in policies[0]
    assert "unsafe" not in policies[0]
    assert "'self'" not in policies[0].replace("connect-src 'self'", "")
    assert answers[0].headers["x-content-type-options"] == "nosniff"
    blocked = page.evaluate(
        """() => new Promise(resolve => {
            addEventListener("securitypolicyviolation", event => resolve(event.effectiveDirective));
            const image = document.createElement("img");
            image.src = "/nothing";
            document.body.append(image);
        })"""
    )
    assert blocked == "img-src"
    for html in ["document.body.innerHTML = '<b>'", "document.body.setAttribute('onclick', 'alert(1)')"]:
        with pytest.raises(Exception, match="Trusted"):
            page.evaluate(html)
