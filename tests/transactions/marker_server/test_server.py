"""Markers that go through the driver's server: made once, before they are answered, and never for an ended write."""

from __future__ import annotations

import logging
import pickle
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from early_writes import GROUP
from one_table import Table
from served_writes import HOST, ServedWriter, closed_port, post, served, served_manager

from lakelatch.engine.write.tasks.task import WriteTask
from lakelatch.errors import InvalidRequest, TransactionEnded, Unavailable
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.testing.faults.storage import LOST_AFTER, LOST_BEFORE, UNAVAILABLE, Fault, FaultyStorage
from lakelatch.testing.servers import TcpProxy
from lakelatch.transactions.base.settings import (
    MARKER_HOST_OPTION,
    MARKER_INTERVAL_OPTION,
    MARKER_PORT_OPTION,
    MARKER_THREADS_OPTION,
    MARKER_TYPE_OPTION,
    MarkerServerSettings,
    TransactionSettings,
)
from lakelatch.transactions.early.server_client import (
    Answer,
    MarkerClient,
    ServerAddress,
)
from lakelatch.transactions.marker_server.batches import MarkerBatches
from lakelatch.transactions.marker_server.server import MarkerSession
from lakelatch.transactions.markers.files import MARKERS_FOLDER, data_files_in

MARKER = f"p/.{GROUP}_1.log.1_0-0-0.marker.CREATE"


def through(address: ServedWriter, proxy: TcpProxy) -> ServedWriter:
    return replace(address, address=replace(address.place, host=proxy.host, port=proxy.port))


def test_markers_lie_where_hudi_has_them(table: Table) -> None:
    with served(table, None) as (writer,):
        stats = [writer.write(), writer.write("00000004-x", "")]
        folder = f"{MARKERS_FOLDER}/{writer.instant}"
        assert table.storage.read(f"{folder}/MARKERS.type") == b"TIMELINE_SERVER_BASED"
        assert sorted(writer.lines()) == sorted(f"{stat.path}.marker.CREATE" for stat in stats)
        assert set(table.storage.list(folder).files) <= {"MARKERS.type", *(f"MARKERS{i}" for i in range(4))}
        assert table.storage.list(folder).folders == ()
        assert sorted(writer.transaction.markers.announced()) == sorted(stat.path for stat in stats)
    writer.commit(*stats)
    assert table.leftovers() == [] and sorted(table.data_files()) == sorted(stat.path for stat in stats)


def test_all_files_of_a_step_go_in_one_request_and_one_put(table: Table) -> None:
    puts: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation.startswith("put") and "/MARKERS" in path and not path.endswith(".type"):
            puts.append(path)

    with served(table, None, storage=FaultyStorage(table.storage, before=before)) as (writer,):
        with writer.attempt() as files:
            step = [("p", f".{number:08d}-x_{writer.instant}.log.1_0-0-0") for number in range(500)]
            files.announce_all(step)
            files.announce_all(step)
        assert len(puts) == 1 and len(set(writer.lines())) == len(writer.lines()) == 500


def test_a_request_that_comes_again_makes_no_second_marker_and_has_the_same_answer(table: Table) -> None:
    with served(table, None) as (writer,):
        body = {"id": "one", "markers": [MARKER]}
        answers = [post(writer.place, body) for _ in range(3)]
        assert answers == [(200, '{"counts": true}')] * 3 and writer.lines() == [MARKER]
        writer.transaction.markers.close()
        assert post(writer.place, body) == answers[0]  # it counted, and so it is swept or kept
        status, text = post(writer.place, {"id": "two", "markers": [MARKER.replace("log.1", "log.2")]})
        assert status == 200 and "takes no more files" in text


def test_a_request_that_comes_again_while_it_is_worked_on_waits_for_the_same(table: Table) -> None:
    go_on = threading.Event()
    puts: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation.startswith("put") and "/MARKERS" in path and not path.endswith(".type"):
            puts.append(path)
            assert go_on.wait(60)

    instant = table.manager().begin().instant
    storage = FaultyStorage(table.storage, before=before)
    session = MarkerSession(MarkerBatches(storage, instant, 4, 0, table.system))
    answers = [session.ask("one", [MARKER]) for _ in range(3)]
    go_on.set()
    assert all(answer.result(60) == Answer() for answer in answers)
    session.close()
    assert len(puts) == 1


def test_a_lost_answer_makes_no_second_marker(table: Table) -> None:
    with served(table, None) as (writer,):
        proxy = TcpProxy(writer.place.host, writer.place.port)
        try:
            behind = through(writer, proxy)
            with behind.attempt() as files:
                files.announce("p", behind.name())
                proxy.lose_answers(2)
                stat_name = behind.name("00000004-x")
                files.create("p", stat_name, b"rows", 1)
        finally:
            proxy.close()
        assert sorted(writer.lines()) == sorted(f"p/{name}.marker.CREATE" for name in (behind.name(), stat_name))
        assert table.storage.list(f"{MARKERS_FOLDER}/{writer.instant}").folders == ()


@pytest.mark.parametrize("token", ["", "0" * 64, "Bearer"])
def test_another_token_opens_nothing(table: Table, token: str) -> None:
    with served(table, None) as (writer,):
        status, text = post(writer.place, {"id": "one", "markers": [MARKER]}, token)
        assert status == 401 and writer.place.token not in text and writer.lines() == []
        with pytest.raises(Unavailable, match="401"):
            MarkerClient(replace(writer.place, token=token or "x"), table.system).ask([MARKER])


def test_each_writes_token_opens_its_own_markers_only(table: Table) -> None:
    with served(table, None, count=2, server=MarkerServerSettings(port=closed_port())) as (one, two):
        assert one.place.port == two.place.port and one.place.token != two.place.token
        assert post(one.place, {"id": "same", "markers": [MARKER]})[0] == 200
        assert one.lines() == [MARKER] and two.lines() == []
        assert post(two.place, {"id": "same", "markers": []})[0] == 200 and two.lines() == []


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", {"id": 1, "markers": []}, {"id": "x"}, {"id": "x", "markers": "p/a_1.marker.CREATE"}]
    + [
        {"id": "x", "markers": [path]}
        for path in ("p/a_1", "../a_1.marker.CREATE", "/a_1.marker.CREATE", ".hoodie/x_1.marker.CREATE", "a\n.marker.X")
    ],
)
def test_what_is_no_marker_is_refused(table: Table, body: object) -> None:
    with served(table, None) as (writer,):
        assert post(writer.place, body)[0] == 400 and writer.lines() == []


def test_the_token_is_shown_nowhere(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), served(table) as (writer,):
        token = writer.place.token
        writer.write()
        post(writer.place, "{")
        nothing: Any = None
        task = WriteTask(table.storage, nothing, nothing, "", writer.instant, "upsert", "avro", server=writer.place)
        assert len(token) >= 32 and pickle.loads(pickle.dumps(task)).server.token == token
        for text in (repr(task), str(writer.place), repr(writer.transaction.early_detection()), caplog.text):
            assert token not in text
        stored = [table.storage.read(path) for path in table.storage.walk("")]
        assert stored and not any(token.encode() in content for content in stored)


def test_a_taken_port_is_refused_and_the_option_named(table: Table) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        manager = served_manager(table, server=MarkerServerSettings(port=port))
        transaction = manager.begin()
        with pytest.raises(InvalidRequest, match=MARKER_PORT_OPTION) as caught, transaction.serve_markers(HOST):
            pass
        assert str(port) in str(caught.value) and caught.value.details["option"] == MARKER_PORT_OPTION
        transaction.abort()
    assert table.leftovers() == []


def test_a_marker_server_that_is_not_installed_is_refused_before_anything_begins(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)  # as Python itself marks what cannot be imported
    with pytest.raises(InvalidRequest, match=r"pip install 'lakelatch\[marker-server\]'") as caught:
        served_manager(table)
    assert caught.value.details["option"] == MARKER_TYPE_OPTION
    assert table.manager().begin().instant


def test_what_an_executor_imports_does_not_need_the_marker_server() -> None:
    modules = "lakelatch.engine.write.tasks.task, lakelatch.engine.table.manager"
    code = f"import sys; sys.modules['aiohttp'] = None; import {modules}"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_refused(table: Table, host: str) -> None:
    transaction = served_manager(table, server=MarkerServerSettings(host=host)).begin()
    with pytest.raises(InvalidRequest, match=MARKER_HOST_OPTION), transaction.serve_markers(HOST):
        pass


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "::"])
def test_tasks_are_not_sent_to_the_address_of_every_machine(table: Table, everywhere: str) -> None:
    with served(table, None, server=MarkerServerSettings(host=everywhere)) as (writer,):
        assert writer.place.host == HOST
        assert everywhere == "::" or post(writer.place, {"id": "x", "markers": []})[0] == 200


def test_a_server_goes_with_its_last_write(table: Table) -> None:
    settings = MarkerServerSettings(port=closed_port())
    with served(table, None, server=settings) as (one,):
        with served(table, None, server=settings):
            pass
        assert post(one.place, {"id": "x", "markers": []})[0] == 200
    with socket.create_server((HOST, settings.port)):
        pass


def test_a_write_that_ends_on_a_slow_storage_lets_others_come_and_go(table: Table) -> None:
    go_on, reached = threading.Event(), threading.Event()

    def before(operation: str, path: str) -> None:
        if operation.startswith("put") and "/MARKERS" in path and not path.endswith(".type"):
            reached.set()
            assert go_on.wait(60)

    slow = served_manager(table, None, FaultyStorage(table.storage, before=before)).begin().serve_markers(HOST)
    other = served_manager(table, None).begin()
    address = slow.__enter__()
    assert address is not None

    def come_and_go() -> None:
        with other.serve_markers(HOST):
            pass

    with ThreadPoolExecutor(3) as threads:
        try:
            threads.submit(post, address, {"id": "one", "markers": [MARKER]})
            assert reached.wait(60)
            ending = threads.submit(slow.__exit__, None, None, None)
            while post(address, {"id": "two", "markers": []})[0] != 401:  # its session has ended
                assert not ending.done()
            threads.submit(come_and_go).result(60)
            assert not ending.done()
        finally:
            go_on.set()
        ending.result(60)


@pytest.mark.parametrize("strategy", [None, "timeline_server"])
def test_a_server_that_is_gone_is_replaced_by_direct_markers_with_one_warning(
    table: Table, caplog: pytest.LogCaptureFixture, strategy: str | None
) -> None:
    with served(table, strategy) as (writer,):
        kept = [writer.write()]
    with caplog.at_level(logging.WARNING):
        kept += [writer.write("00000004-x"), writer.write("00000005-x", "")]
    warned = [record.message for record in caplog.records if "could not be reached" in record.message]
    assert len(warned) == 1 and str(writer.place.port) in warned[0] and writer.place.token not in warned[0]
    assert len(writer.lines()) == 1
    assert sorted(writer.transaction.markers.announced()) == sorted(stat.path for stat in kept)
    extra = writer.write("00000006-x")
    assert writer.commit(*kept).instant == writer.instant
    assert extra.path not in table.data_files() and len(table.data_files()) == 3 and table.leftovers() == []


def test_a_server_that_does_not_answer_is_given_up_at_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server((HOST, 0)) as silent:
        place = ServerAddress(HOST, silent.getsockname()[1], "token")

        def ask(_: int) -> str:
            with pytest.raises(Unavailable) as caught:
                MarkerClient(place, deadline_s=0.3).ask([MARKER])
            return str(caught.value)

        with caplog.at_level(logging.WARNING), ThreadPoolExecutor(4) as pool:
            assert any("could not be reached (" in text for text in pool.map(ask, range(4)))
        assert len([record for record in caplog.records if "could not be reached" in record.message]) == 1
        assert "a moment ago" in ask(0)  # the next one does not wait again


def test_nothing_is_announced_for_a_write_that_is_closed_or_has_ended(table: Table) -> None:
    with served(table, None, count=2) as (closed, ended):
        closed.transaction.markers.close()
        table.storage.delete(heartbeat_path(ended.instant))
        for writer in (closed, ended):
            with pytest.raises(TransactionEnded):
                writer.write()
    assert table.data_files() == []


@pytest.mark.parametrize("moment", ["before the marker", "after the marker"])
def test_a_rollback_while_the_server_writes_bars_the_file(table: Table, moment: str) -> None:
    """The driver is paused at either side of its put; somebody else takes it for dead, and rolls the write back."""
    rolled: list[str] = []
    writers: list[ServedWriter] = []

    def before(operation: str, path: str) -> None:
        marking = operation.startswith("put") and path.endswith("/MARKERS0")
        checking = operation == "stat" and "/open/" in path
        if writers and not rolled and (marking if moment == "before the marker" else checking):
            rolled.append(path)
            table.expire(writers[0].instant)
            assert table.manager().recover() == [writers[0].instant]

    with served(table, None, storage=FaultyStorage(table.storage, before=before)) as (writer,):
        writers.append(writer)
        with pytest.raises(TransactionEnded):
            writer.write()
    assert len(rolled) == 1 and table.data_files() == []
    later = table.manager()
    later.recover()
    assert table.leftovers() == [] and table.rollbacks() == 1


def test_a_task_that_comes_back_after_a_rollback_finds_a_tombstone(table: Table) -> None:
    """It had its answer before; the driver died, and a rollback read the server's markers."""
    with served(table, None) as (writer,), writer.attempt() as files:
        files.announce("p", writer.name())
        done = writer.write("00000004-x")
        table.expire(writer.instant)
        assert table.manager().recover() == [writer.instant]
        assert not table.storage.exists(done.path) or table.storage.stat(done.path).size_bytes == 0
        with pytest.raises(TransactionEnded):
            files.create("p", writer.name(), b"rows", 1)
    assert table.data_files() == []


@pytest.mark.parametrize("kind", [LOST_AFTER, LOST_BEFORE, UNAVAILABLE])
def test_a_storage_that_fails_for_a_moment_costs_no_marker(table: Table, kind: str) -> None:
    storage = FaultyStorage(table.storage, [Fault(kind, "put_if_absent", MARKERS_FOLDER, times=3)])
    with served(table, None, storage=storage, server=MarkerServerSettings(files_at_once=1)) as (writer,):
        stats = [writer.write(f"0000000{number}-x") for number in range(3)]
        assert storage.failed == 3
        assert set(writer.lines()) == {f"{stat.path}.marker.CREATE" for stat in stats}
    assert writer.commit(*stats).instant == writer.instant


def test_no_server_writes_over_what_it_or_another_has_written(table: Table) -> None:
    """As when a driver goes on with the write of another one; and a put that arrives late finds its name taken."""
    puts: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation.startswith("put") and path.startswith(MARKERS_FOLDER):
            puts.append(operation)

    storage = FaultyStorage(table.storage, before=before)
    with served(table, None, storage=storage, server=MarkerServerSettings(files_at_once=1)) as (writer,):
        first = f"{MARKERS_FOLDER}/{writer.instant}/MARKERS0"
        table.storage.put(first, b"q/foreign_1.marker.CREATE\n")
        stats = [writer.write(f"0000000{number}-x") for number in range(5)]
        assert table.storage.read(first) == b"q/foreign_1.marker.CREATE\n"
        assert set(writer.lines()) == {"q/foreign_1.marker.CREATE", *(f"{stat.path}.marker.CREATE" for stat in stats)}
    assert len(puts) >= 7 and set(puts) == {"put_if_absent"}  # a client that is kept waiting asks once more


def test_many_tasks_at_once_each_have_their_markers_once(table: Table) -> None:
    with served(table, None) as (writer,):

        def work(task: int) -> list[str]:
            client, markers = MarkerClient(writer.place), []
            for number in range(40):
                markers.append(f"p{task}/.{number:08d}-x_1.log.1_0-0-0.marker.CREATE")
                assert client.ask(markers[-1:]).ended is None
            client.close()
            return markers

        with ThreadPoolExecutor(8) as pool:
            asked = [marker for markers in pool.map(work, range(8)) for marker in markers]
        assert sorted(writer.lines()) == sorted(asked) and len(asked) == 320


def test_lines_that_lead_elsewhere_are_no_data_files() -> None:
    lines = b"p/a_1.marker.CREATE\n../x_1.marker.CREATE\n/q/b_1.marker.MERGE\np/../../y_1.marker.CREATE\n"
    lines += b".hoodie/hoodie.properties.marker.CREATE\n\xff_1.marker.CREATE\nd_1.marker.APPEND\np/half_1.par"
    assert list(data_files_in(lines)) == ["p/a_1", "q/b_1", "d_1"]


def test_what_the_options_say() -> None:
    options = {MARKER_TYPE_OPTION: "timeline_server_based"}
    assert TransactionSettings.from_options({}).marker_server is None
    assert TransactionSettings.from_options(options).marker_server == MarkerServerSettings()
    options |= {MARKER_HOST_OPTION: "driver", MARKER_PORT_OPTION: "7077"}
    options |= {MARKER_THREADS_OPTION: "20", MARKER_INTERVAL_OPTION: "50"}
    expected = MarkerServerSettings("driver", 7077, 20, 50)
    assert TransactionSettings.from_options(options).marker_server == expected
    for option, value in ((MARKER_PORT_OPTION, "65536"), (MARKER_THREADS_OPTION, "0"), (MARKER_INTERVAL_OPTION, "x")):
        with pytest.raises(InvalidRequest, match=option):
            TransactionSettings.from_options({option: value})
