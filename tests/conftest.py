"""For every test: one Spark session a process, no silent skips where forbidden, failures told at once, times of files.

`kill -USR1 <pid>` makes a running session print the stack of each of its threads.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from lakelatch.heartbeat.beat import Heartbeat
from lakelatch.testing.faults.plan import DONE, Fault, ListedFaults

if TYPE_CHECKING:
    from live_table import LiveTable
    from pyspark.sql import SparkSession

    from lakelatch.testing.servers import Server

sys.path.insert(0, str(Path(__file__).parent / "support"))  # for `live_table` and its like

FORBID_SKIPS = "LAKELATCH_FORBID_SKIPS"
FAILED_TESTS = "LAKELATCH_FAILED_TESTS"
FUZZ_EXAMPLES = "LAKELATCH_FUZZ_EXAMPLES"
TEST_STORE = "LAKELATCH_TEST_STORE"
JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"

# A test that cannot apply is no test that should have run. The whole reason has to stand here, as its suite gives it:
# a pattern would let any test excuse itself.
RIGHTFUL_SKIPS = (
    "does not apply: this provider does not promise an order",
    "does not apply: this provider works within one process",
    "does not apply: this generator's lock provider works within one process",
)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """One session for all tests of a process: under xdist each worker that meets a test of Spark has its own JVM."""
    from spark_session import open_test_session

    if in_a_store():
        request.getfixturevalue("store_in_environment")  # before Java starts, of which executors inherit it
    session = open_test_session()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def seaweedfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The object store: it starts when the first test asks for it."""
    from lakelatch.testing.servers import open_server

    with closing(open_server("seaweedfs", tmp_path_factory.mktemp("seaweedfs"))) as server:
        yield server


def in_a_store() -> bool:
    """Whether tables of tests that ask for a path lie in SeaweedFS: `make test-long` runs those of `stores` there."""
    kind = os.environ.get(TEST_STORE, "")
    if kind not in ("", "seaweedfs"):
        raise pytest.UsageError(f"{TEST_STORE}={kind} is not known: set it to seaweedfs, or leave it out")
    return bool(kind)


@pytest.fixture(scope="session")
def store_in_environment(seaweedfs_server: Server) -> Iterator[None]:
    """The environment leads to the object store, as that of a user's job does."""
    from lakelatch.testing.servers.reach import place_environment

    with pytest.MonkeyPatch.context() as patch:
        for name, value in place_environment(seaweedfs_server).items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def table_path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the table of a test lies: in its folder, or in the bucket if the whole run is to be there."""
    if not in_a_store():
        return str(tmp_path / "trips")
    from lakelatch.testing.servers.seaweedfs import BUCKET

    request.getfixturevalue("store_in_environment")
    return f"s3://{BUCKET}/{tmp_path.parent.name}/{tmp_path.name}/trips"


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    """An empty table with real rows, in a folder."""
    from live_table import LiveTable

    return LiveTable(tmp_path / "table")


@pytest.fixture(autouse=True)
def nothing_beats_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A heartbeat that a test leaves behind would write files in the middle of another one."""
    started: list[Heartbeat] = []
    start = Heartbeat.start

    def remember(heartbeat: Heartbeat) -> None:
        started.append(heartbeat)
        start(heartbeat)

    monkeypatch.setattr(Heartbeat, "start", remember)
    yield
    for heartbeat in started:
        heartbeat.stop()


@pytest.fixture(autouse=True)
def faults_are_injected(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[Fault, bool]]:
    """A test that lists faults has met each of them; one that was never injected has tested nothing.

    Those that are drawn by chance are for the test to count. A test clears what this yields if nobody is to meet its
    faults, or another process does.
    """
    listed: dict[Fault, bool] = {}
    make, decide = ListedFaults.__init__, ListedFaults.decide

    def made(plan: ListedFaults, faults: Iterable[Fault] = (), *more: Any, **named: Any) -> None:
        make(plan, faults, *more, **named)
        for fault in plan._faults:
            listed.setdefault(fault, fault.probability < 1)

    def decided(plan: ListedFaults, operation: str, path: str, changes: bool) -> str:
        kind = decide(plan, operation, path, changes)
        if kind != DONE:
            met = (one for one in plan._faults if one.kind == kind and one.concerns(operation, path))
            listed.update((fault, True) for fault in met)
        return kind

    monkeypatch.setattr(ListedFaults, "__init__", made)
    monkeypatch.setattr(ListedFaults, "decide", decided)
    yield listed
    never = [fault for fault, was_met in listed.items() if not was_met]
    assert not never, f"never injected: {never}"


def reason_of_skip(report: pytest.TestReport | pytest.CollectReport) -> str:
    found = report.longrepr
    reason = found[2] if isinstance(found, tuple) else str(found)
    return reason.removeprefix("Skipped: ")


class SkipWatch:
    """Remembers what was skipped, and fails the session for it at the end."""

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._remember(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._remember(report)

    def _remember(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = reason_of_skip(report)
        if reason not in RIGHTFUL_SKIPS:
            self.skipped.append(f"{report.nodeid or 'a module'}: {reason}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.skipped:
            terminalreporter.section("skipped, and skips are forbidden here", red=True)
            for line in self.skipped:
                terminalreporter.line(line)


class FailedTests:
    """Lists what failed, or was skipped where that is forbidden, in a file: lines of JSON with an id and a report."""

    def __init__(self, path: str, skips_fail: bool) -> None:
        self._path = path
        self._skips_fail = skips_fail

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report, hasattr(report, "wasxfail"))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report, False)

    def _note(self, report: pytest.TestReport | pytest.CollectReport, was_expected: bool) -> None:
        skipped = report.skipped and not was_expected and reason_of_skip(report) not in RIGHTFUL_SKIPS
        if report.failed or (self._skips_fail and skipped):
            with open(self._path, "a") as file:
                file.write(json.dumps([report.nodeid, report.longreprtext[-_LONGEST_NEWS:]]) + "\n")


class EarlyNews:
    """Prints each failure when it happens: a session that is cut off later has no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._print(f"FAILED {report.nodeid} ({report.when}, after {report.duration:.0f} s)\n{report.longreprtext}")

    def pytest_handlecrashitem(self, crashitem: str) -> None:
        self._print(f"CRASHED {crashitem}")

    def _print(self, text: str) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(text[-_LONGEST_NEWS:])


class FileTimes:
    """Sums up how long the tests of each file took, set-up included, and prints the slowest files at the end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        slowest = sorted(((taken, name) for name, taken in self.seconds.items()), reverse=True)[:_FILES_SHOWN]
        if slowest:
            whole = sum(self.seconds.values())
            terminalreporter.section(f"slowest of {len(self.seconds)} files, of {whole:.0f} s that all tests took")
            for seconds, name in slowest:
                terminalreporter.line(f"{seconds:7.1f} s  {name}")


_FILES_SHOWN = 10
# Files that take longer than their number of tests tells, in one stage or another, the longest first.
FIRST = (
    "locks/test_faults.py",
    "simulation/test_planted.py",
    "interop/test_hudi_rs.py",
    "faults/test_kill_matrix.py",
    "simulation/test_simulation.py",
    "console/test_demo.py",
    "torture/test_torture.py",
    "engine/services/test_random_services.py",
    "adversary/test_random_tables.py",
    "spark/read/conditions/test_predicates.py",
    "format/index/test_any_age.py",
    "spark/test_cluster.py",
    "interop/test_random_sequences.py",
    "spark/test_data_source.py",
    "model/test_models.py",
    "spark/api/test_table.py",
    "spark/read/test_beside_logs.py",
    "spark/sql/test_changes.py",
    "spark/test_executors.py",
    "docs/test_blocks.py",
    "java/test_life.py",
    "engine/services/test_archiving_races.py",
    "engine/services/test_undoing_beside_others.py",
    "engine/write/test_replace_interleavings.py",
    "faults/test_crowd.py",
    "layout/test_run_tests.py",
    "plugins/test_third_party.py",
)
# A folder whose tests go to one process, but for what is named above: they share what the first one makes.
TOGETHER = "layout/"  # the syntax trees of all files
_LONGEST_NEWS = 6000  # characters of one failure; the summary has the rest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forbid-skips",
        action="store_true",
        default=os.environ.get(FORBID_SKIPS, "0") not in ("", "0"),
        help=f"fail if a test was skipped that should have run (or set {FORBID_SKIPS}=1)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For `--dist loadfile`: files of long tests first, then those with Spark, then those with many tests.

    At the end there should be something to do for every worker.
    """
    here = Path(__file__).parent
    units = {item: unit_of(item.path.as_posix(), f"{here.as_posix()}/") for item in items}
    first = {f"{here.as_posix()}/{name}": place for place, name in enumerate(FIRST)}
    sizes = Counter(units.values())
    with_spark = {units[item] for item in items if "spark" in getattr(item, "fixturenames", ())}
    items.sort(
        key=lambda item: (
            first.get(units[item], len(first)),
            units[item] not in with_spark,
            -sizes[units[item]],
            units[item],
            item.path,
        )
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was imported for all tests is not looked through for garbage again and again while they run."""
    gc.collect()
    gc.freeze()


def unit_of(path: str, folder: str = "tests/") -> str:
    """What runs in one process: a file, or the folder whose tests go together."""
    name = path.removeprefix(folder)
    return folder + TOGETHER if name.startswith(TOGETHER) and name not in FIRST else path


@pytest.hookimpl(optionalhook=True)  # there is none without pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """For `--dist loadfile`: as that is, but for what goes together, and for who takes tests of Spark."""
    if config.getoption("dist") != "loadfile":
        return None
    from scheduling import Scheduling

    return Scheduling(config, log, unit_of)


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")  # for the processes that tests start
    if JAVA_OPTIONS not in os.environ:
        from spark_java import java_options

        os.environ[JAVA_OPTIONS] = java_options()  # for these, too
    if sys.__stderr__ is not None:
        faulthandler.register(signal.SIGUSR1, file=os.dup(sys.__stderr__.fileno()), all_threads=True)
    # Whoever changes one thing is not told of another by chance; who asks for more examples gets new ones each time.
    hypothesis.settings.register_profile("the same each time", derandomize=FUZZ_EXAMPLES not in os.environ)
    hypothesis.settings.load_profile("the same each time")
    forbids_skips = config.getoption("--forbid-skips")
    if forbids_skips:
        config.pluginmanager.register(SkipWatch(), "lakelatch-skip-watch")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(EarlyNews(config), "lakelatch-early-news")
        config.pluginmanager.register(FileTimes(), "lakelatch-file-times")
        if FAILED_TESTS in os.environ:
            # Not for the sessions of pytest that tests start.
            failed_tests = FailedTests(os.environ.pop(FAILED_TESTS), forbids_skips)
            config.pluginmanager.register(failed_tests, "lakelatch-failed-tests")
