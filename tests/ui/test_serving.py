"""How the page is started and who is served: over HTTP, without a browser."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from bare_table import manager_of, write
from live_table import LiveTable
from served_page import Served, serving

from lakelatch.console.main import main
from lakelatch.storage.local import LocalStorage
from lakelatch.transactions.conflicts.report import Loss
from lakelatch.ui.entries import Entry
from lakelatch.ui.trace import trace_events


def ask(page: Served, path: str, method: str = "GET", body: str = "", **headers: str) -> tuple[int, str, str]:
    """Status, cookie and text of an answer; names of headers have `_` for `-`."""
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body or None, headers=named)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, (answer.getheader("Set-Cookie") or "").partition(";")[0], text


def test_only_who_has_the_token_is_served_and_only_under_its_own_name(storage: LocalStorage) -> None:
    with serving(storage.root) as page:
        opened = page.url.removeprefix(page.base)
        status, cookie, text = ask(page, opened)
        assert status == 200 and "<canvas" in text and page.url.rpartition("=")[2] not in cookie
        assert ask(page, "/", Cookie=cookie)[0] == 200
        for path in (
            "/",
            "/static/main.js",
            "/api/events",
            "/?token=",
            f"{opened[:-1]}z",
            "/static/main.js" + opened[1:],
        ):
            assert ask(page, path)[0] == 403, path
        for host in ("evil.test", f"evil.test:{page.port}", "127.0.0.1.evil.test", "", "[::2]:80"):
            assert ask(page, opened, Host=host)[0] == 403, host
        for origin in ("http://evil.test", "null", "http://127.0.0.1:1", f"https://127.0.0.1:{page.port}"):
            assert ask(page, "/", Cookie=cookie, Origin=origin)[0] == 403, origin
        assert (
            ask(page, "/", Cookie=cookie, Host="localhost:1", Origin="http://localhost:1")[0] == 200
        )  # a tunnel's end
        assert ask(page, "/", Cookie=cookie.replace(str(page.port), "1"))[0] == 403
        for missing in ("/static/..%2fserver.py", "/static/nothing.js", "/api/tables/7/archived"):
            assert ask(page, missing, Cookie=cookie)[0] == 404, missing
        status, _, text = ask(page, "/api/tables/0/instants/20260101000000000", Cookie=cookie)
        assert status == 400 and "neither" not in text and json.loads(text)["error"] == "LAKELATCH-INVALID"


@pytest.mark.parametrize(
    ("allowed", "asked", "status"),
    [
        (False, '{"what": "break", "target": "table", "confirmed": "table"}', 403),
        (True, '{"what": "break", "target": "table", "confirmed": "yes"}', 400),
        (True, '{"what": "drop", "target": "table", "confirmed": "table"}', 400),
        (True, '["what"]', 400),
        (True, '{"what": "' + "x" * 5000, 413),
        (True, '{"what": "break", "target": "table", "confirmed": "table"}', 202),
    ],
)
def test_an_action_is_allowed_confirmed_and_from_the_page(
    storage: LocalStorage, allowed: bool, asked: str, status: int
) -> None:
    with serving(storage.root, allow_actions=allowed) as page:
        cookie = ask(page, page.url.removeprefix(page.base))[1]
        path, kind = "/api/tables/0/actions", "application/json"
        if status == 202:
            assert ask(page, path, "POST", asked, Cookie=cookie, Content_Type=kind)[0] == 403  # without an origin
            assert ask(page, path, "POST", asked, Cookie=cookie, Origin=page.base, Content_Type="text/plain")[0] == 415
        assert ask(page, path, "POST", asked, Cookie=cookie, Origin=page.base, Content_Type=kind)[0] == status


def test_a_path_that_is_no_table_and_a_port_in_use_are_said(
    storage: LocalStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ui", str(tmp_path), "--port", "0"]) == 1
    assert "Below it are tables: trips" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["ui", storage.root, "--port", port]) == 1
        assert f"--port {port} is in use" in capsys.readouterr().err
    assert main(["ui", storage.root, "--port", "70000"]) == 2
    assert "'--port': 70000" in capsys.readouterr().err
    for host in ("192.0.2.1", "0.0.0.0"):
        assert main(["ui", storage.root, "--host", host, "--port", "0"]) == 2
        assert f"--host {host}" in capsys.readouterr().err


def test_a_missing_library_is_named_with_its_extra(storage: LocalStorage) -> None:
    hidden = "import sys; sys.modules['uvicorn'] = None"
    script = f"{hidden}; from lakelatch.console.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "ui", storage.root]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "the page needs uvicorn: pip install 'lakelatch[ui]'" in done.stderr


def test_the_command_ends_at_once_although_somebody_looks(storage: LocalStorage) -> None:
    command = [sys.executable, "-m", "lakelatch", "ui", storage.root, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        page = Served(process.stdout.readline().split()[1])
        cookie = ask(page, page.url.removeprefix(page.base))[1]
        connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
        connection.request("GET", "/api/events?table=0", headers={"Cookie": cookie})
        stream = connection.getresponse()
        assert (
            stream.getheader("Content-Type", "").startswith("text/event-stream")
            and stream.readline() == b"retry: 1000\n"
        )
        process.send_signal(signal.SIGINT)
        _, problems = process.communicate(timeout=30)
        connection.close()
        assert process.returncode == 0 and problems == ""


def test_each_table_of_a_page_has_its_own_options(tmp_path: Path) -> None:
    config = ""
    for name, many in (("rarely", 9), ("often", 1)):
        LiveTable(tmp_path / name).write([(1, 1, "a")])
        config += f'[tables.{name}]\npath = "{name}"\n[tables.{name}.options]\n'
        config += f"hoodie.compact.inline.max.delta.commits = {many}\n"
    (tmp_path / "lakelatch.toml").write_text(config)
    command = [sys.executable, "-m", "lakelatch", "ui", "rarely", "often", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        page = Served(process.stdout.readline().split()[1])
        cookie = ask(page, page.url.removeprefix(page.base))[1]
        due = [_due(page, cookie, number) for number in (0, 1)]
        process.terminate()
    assert due == [[], ["compaction"]]


def _due(page: Served, cookie: str, table: int) -> object:
    """The services of a table that are due, as its stream says first."""
    with closing(http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)) as connection:
        connection.request("GET", f"/api/events?table={table}", headers={"Cookie": cookie})
        for line in connection.getresponse():
            plans = json.loads(line.removeprefix(b"data: ")).get("parts", {}).get("plans") if line[:1] == b"d" else None
            if plans:
                return plans["due"]
    return None


def test_a_trace_has_a_track_for_each_writer_and_a_flow_to_each_winner(
    storage: LocalStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = write(manager_of(storage, writer="w"), "a")
    file = tmp_path / "trace.json"
    assert main(["timeline", storage.root, "--trace", str(file), "--json"]) == 0
    events = json.loads(file.read_text())["traceEvents"]
    (slice_,) = [event for event in events if event["ph"] == "X"]
    assert slice_["args"]["requested"] == done.instant and slice_["dur"] > 0 and slice_["name"] == "upsert"
    assert main(["timeline", storage.root, "--trace", str(tmp_path / "no" / "trace.json")]) == 2
    assert "--trace" in capsys.readouterr().err
    winner = Entry("20260101000000000", "20260101000005000", "deltacommit", "completed", "upsert", "hourly")
    loss = Loss(
        "20260101000001000",
        "nightly",
        winner.requested,
        "deltacommit",
        "hourly",
        False,
        False,
        1,
        "",
        (),
        1,
        6.5,
        3,
        4,
        5.0,
    )
    events = trace_events("s3://someone:secret@bucket/t", [winner], [loss])
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {"hourly", "nightly"}
    start, finish = (next(event for event in events if event["ph"] == phase) for phase in "sf")
    assert start["tid"] != finish["tid"] and finish["ts"] - start["ts"] == -2_500_000
    assert "secret" not in json.dumps(events)
