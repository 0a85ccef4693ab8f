"""The page in a real browser, while its table is written."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bare_table import add_file, bare_table, commit, manager_of, provider_of
from live_table import LiveTable
from served_page import Served, serving, wait_until

from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.errors import WriteConflict
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.storage.local import LocalStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.clock import ManualSystem
from lakelatch.timeline.metadata import SCHEMA_KEY, WRITER_KEY, CommitMetadata
from lakelatch.transactions.conflicts.report import Work

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCHEMA = '{"type": "record", "name": "t", "fields": [{"name": "<i>id</i>", "type": "long"}]}'
MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture
def served(storage: LocalStorage) -> Iterator[Served]:
    with serving(storage.root, allow_actions=True) as page:
        yield page


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    """The page, opened by its URL. What goes wrong in it fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    opened.goto(served.url)
    opened.locator("#connection.live").wait_for()
    yield opened
    context.close()
    assert not problems


def test_a_write_moves_while_one_looks(storage: LocalStorage, page: Page) -> None:
    assert "token" not in page.url
    transaction = manager_of(storage, writer=MARKUP).begin()
    key = transaction.instant
    row = page.locator(f"#twin-table tr:has([data-key='{key}'])")
    row.locator(".state-open").wait_for()
    page.locator(f"#writers [data-focus='i{key}']").wait_for()
    assert page.evaluate("lakelatch.chart.drawn.map(([one]) => [one.key, one.outcome])") == [[key, "open"]]
    stat = add_file(transaction, "a", partition="p=1")
    transaction.commit(CommitMetadata((stat,), "UPSERT", {WRITER_KEY: MARKUP, SCHEMA_KEY: SCHEMA}))
    row.locator(".state-done").wait_for()
    row.filter(has_text="upsert").wait_for()  # its content is read after its name
    assert MARKUP in row.inner_text()
    page.locator(f"[data-key='{key}']").click()
    details = page.locator("#details:has-text('p=1/')")
    details.wait_for()
    assert "<i>id</i>" in details.inner_text() and MARKUP in details.inner_text()
    wait_until(page, "lakelatch.chart.drawn.some(([one]) => one.outcome === 'done' && one.end - one.start > 0)")
    assert page.locator("#writers").inner_text() == "no transaction is open"


def test_a_conflict_appears_with_what_it_cost(storage: LocalStorage, page: Page) -> None:
    loser, winner = manager_of(storage, writer="nightly").begin(), manager_of(storage, writer="hourly").begin()
    mine, theirs = add_file(loser, "a"), add_file(winner, "a", attempt=1)
    commit(winner, theirs)
    with pytest.raises(WriteConflict):
        loser.commit(CommitMetadata((mine,), "UPSERT"), work=Work(12_345, 6_700_000, 90_000))
    page.locator("#losses:has-text('nightly lost to hourly')").wait_for()
    row = page.locator(f"#twin-table tr:has([data-key='{loser.instant}'])")
    row.locator(".state-lost").wait_for()
    assert "lost to hourly" in row.inner_text() and "6.7 MB" in row.inner_text()
    page.locator("#news:has-text('lost to hourly')").wait_for(state="attached")
    again = manager_of(storage, writer="nightly").begin()
    page.locator(f"#twin-table tr:has([data-key='{again.instant}']):has-text('try 2')").wait_for()
    commit(again, add_file(again, "a", attempt=2))
    page.locator("#outcome").select_option("lost")
    wait_until(page, "document.querySelectorAll('#twin-table tbody tr').length === 1")
    page.locator("#search").fill("hourly")  # the winner's name is not the loser's
    wait_until(page, "document.querySelectorAll('#twin-table tbody tr').length === 0")


def test_where_nothing_is_in_view_the_page_says_when_the_last_instant_was_and_goes_there(
    storage: LocalStorage, page: Page
) -> None:
    note, in_view = page.locator("#empty"), "lakelatch.chart.drawn.map(([one]) => one.key)"
    page.locator("#empty:has-text('There are no instants')").wait_for()
    assert page.locator("#show-last").is_hidden()
    last = manager_of(storage, writer="only").begin()
    note.wait_for(state="hidden")
    commit(last, add_file(last, "a"))
    page.locator(f"[data-key='{last.instant}']").wait_for()
    page.evaluate("lakelatch.chart.span = 400")  # which is over soon, as a minute is later
    said = re.compile(r"Nothing in the last 368 ms\. The last instant was at 20\S+ \S+, \d+\.0 s ago\.")
    note.filter(has_text=said).wait_for()
    wait_until(page, f"{in_view}.length === 0")  # its edge may still be drawn
    page.locator("#show-last").click()
    note.wait_for(state="hidden")
    wait_until(page, f"{in_view}.join() === '{last.instant}' && lakelatch.chart.span === 400")
    page.locator("#follow").click()
    note.wait_for()
    coming = manager_of(storage, writer="only").begin()
    note.wait_for(state="hidden")
    coming.abort()
    page.locator("#search").fill("nobody")
    page.locator("#empty:has-text('as the search and the filters want it')").wait_for()


def test_a_page_that_shows_all_of_a_quiet_table_goes_to_what_begins_unless_one_has_moved(
    storage: LocalStorage, page: Page
) -> None:
    an_hour_ago = ManualSystem(REAL_SYSTEM.realtime_ms() - 3_600_000)
    old = manager_of(storage, times=an_hour_ago, writer="old").begin()
    commit(old, add_file(old, "a"))
    moved = page.context.new_page()
    in_view = "lakelatch.chart.drawn.map(([one]) => one.key).join()"
    for one in (page, moved):
        one.goto(page.url)
        wait_until(one, f"{in_view} === '{old.instant}'")
        one.locator("#follow[aria-pressed=false]").wait_for()
    moved.locator("#zoom-out").click()
    coming = manager_of(storage, writer="new").begin()
    page.locator("#follow[aria-pressed=true]").wait_for()
    wait_until(page, f"{in_view} === '{coming.instant}'")
    moved.locator(f"#twin-table tr:has([data-key='{coming.instant}'])").wait_for()
    assert moved.locator("#follow[aria-pressed=false]").count() == 1 and moved.evaluate(in_view) == old.instant
    coming.abort()


def test_a_lock_is_broken_after_it_was_confirmed(storage: LocalStorage, page: Page) -> None:
    provider = provider_of(storage)
    lease = provider.acquire(TABLE_KEY, 5)
    held = page.locator(f"#locks tr:has-text('{lease.owner}')")
    held.wait_for()
    assert str(lease.token) in held.inner_text()
    held.get_by_role("button", name="break").click()
    page.locator("#confirm-no").click()
    assert lease.valid()
    held.get_by_role("button", name="break").click()
    page.locator("#confirm-yes").click()
    page.locator("#actions:has-text('it was taken from')").wait_for()
    page.locator("#locks:has-text('no lock is held')").wait_for()
    assert not lease.valid()
    provider.close()


def test_no_other_page_host_or_token_gets_in(
    storage: LocalStorage, served: Served, page: Page, browser: Browser
) -> None:
    provider = provider_of(storage)
    other = page.context.new_page()  # with the same cookies, which go to all ports of a host
    form = f"<form method=post action={served.base}/api/tables/0/actions><button>Win a prize</button></form>"
    with provider.acquire(TABLE_KEY, 5) as lease:
        other.route("http://127.0.0.1:9/**", lambda route: route.fulfill(body=form, content_type="text/html"))
        other.goto("http://127.0.0.1:9/")
        other.get_by_role("button").click()
        other.wait_for_url(f"{served.base}/**")
        assert "The origin 'http://127.0.0.1:9' may not ask here" in other.inner_text("body")
        assert lease.valid()
    other.goto(served.url.replace("127.0.0.1", "foreign.test"))
    assert "not served for the host" in other.inner_text("body")
    fresh = browser.new_context()
    stranger = fresh.new_page()
    stranger.goto(f"{served.base}/?token=0123456789abcdef0123456789abcdef")
    assert "open the whole URL" in stranger.inner_text("body")
    fresh.close()
    provider.close()


def test_a_table_that_goes_away_is_said_and_so_is_one_that_comes(storage: LocalStorage, page: Page) -> None:
    first = manager_of(storage).begin()
    commit(first, add_file(first, "a"))
    page.locator(f"[data-key='{first.instant}']").wait_for()
    shutil.rmtree(storage.root)
    page.locator("#problem:has-text('not there any more')").wait_for()
    wait_until(page, "lakelatch.store.entries.size === 0")
    bare_table(storage)
    second = manager_of(storage, writer="anew").begin()
    page.locator(f"#twin-table tr:has([data-key='{second.instant}']):has-text('anew')").wait_for()
    page.locator("#problem").wait_for(state="hidden")
    assert page.evaluate("[...lakelatch.store.entries.keys()]") == [second.instant]
    second.abort()


def test_another_table_and_what_it_has_archived(
    storage: LocalStorage, tmp_path: Path, page: Page, served: Served
) -> None:
    table = LiveTable(tmp_path / "other")
    written = [table.write([(number, 1, "x")]).instant for number in range(3)]
    table.compact()
    written += [table.write([(number, 1, "x")]).instant for number in range(3)]
    gone = table.archive(ArchivingOptions(min_commits=2, max_commits=3, minimum_age_s=0)).instants
    with serving(storage.root, str(table.root)) as both:
        page.goto(both.url)
        page.locator("#tables button:has-text('other')").click()
        page.locator(f"[data-key='{written[-1]}']").wait_for()
        assert page.locator(f"[data-key='{gone[0]}']").count() == 0
        page.locator("#archived").click()
        page.locator(f"#twin-table tr:has([data-key='{gone[0]}']):has-text('archived')").wait_for()
        assert page.evaluate("lakelatch.store.entries.size") >= len(gone) + 1
        page.goto("about:blank")


def test_keys_themes_and_a_phone(storage: LocalStorage, page: Page) -> None:
    manager = manager_of(storage, writer="only")
    for group in "abc":
        transaction = manager.begin()
        commit(transaction, add_file(transaction, group))
    page.locator(f"[data-key='{transaction.instant}']").wait_for()
    chart = page.locator("#chart")
    chart.focus()
    before = page.evaluate("[lakelatch.chart.span, lakelatch.chart.start]")
    page.keyboard.press("+")
    page.keyboard.press("ArrowLeft")
    after = page.evaluate("[lakelatch.chart.span, lakelatch.chart.start]")
    assert after[0] < before[0] and page.locator("#follow[aria-pressed=false]").count() == 1
    page.keyboard.press("]")
    page.keyboard.press("Enter")
    page.locator(f"#details h2:has-text('{transaction.instant}')").wait_for()
    page.keyboard.press("Escape")
    assert page.locator("#details").is_hidden()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("document.getElementById('scroll').clientWidth") > 340
    unnamed = page.evaluate("[...document.querySelectorAll('button')].filter((one) => !one.textContent.trim()).length")
    assert unnamed == 0


#: Instants of one lane, some of which overlap all that follow, or are open; what is in view, by both ways.
IN_VIEW = """() => {
  const store = new lakelatch.store.constructor();
  const at = (second) => `202601010000${String(second).padStart(2, "0")}000`;
  const entry = ([start, end]) => ({
    key: `${start}-${end}`, requested: at(start), completion: end ? at(end) : null, action: "commit",
    state: end ? "completed" : "inflight", writer: "w",
  });
  const entries = [[1, 2], [3, 40], [4, 5], [10, 11], [20, 21], [30, null], [50, 51]].map(entry);
  store.apply({ now_ms: Date.now(), reset: true, gone: [], entries, parts: {} });
  const zero = Date.UTC(2026, 0, 1);
  const views = [[0, 60], [6, 9], [5, 20], [41, 49], [52, 59], [2, 2]];
  const seen = ([from, to]) => store.between(zero + from * 1000, zero + to * 1000, store.now());
  return views.map((view) => seen(view).map((one) => one.key).join(" "));
}"""


def test_what_is_in_view_is_found_among_what_is_shown(page: Page) -> None:
    everything = "1-2 3-40 4-5 10-11 20-21 30-null 50-51"
    during = ["3-40", "3-40 4-5 10-11 20-21", "30-null", "30-null", "1-2"]
    assert page.evaluate(IN_VIEW) == [everything, *during]
    page.evaluate(MANY)
    bars = page.evaluate("lakelatch.chart.drawn.length")
    assert 0 < bars < 1000 and page.evaluate("lakelatch.chart.lanes.size") == 1
    assert all(-15_000 < away < 15_000 for away in page.evaluate(AWAY))


#: 5,000 instants of one writer, a second each, all of them in view.
MANY = """() => {
  const { chart, store } = lakelatch;
  const text = (ms) => new Date(ms).toISOString().replace(/[^0-9]/g, "").slice(0, 17);
  const zero = Date.now() - 5000000;
  const entries = Array.from({ length: 5000 }, (_, number) => ({
    key: String(number), requested: text(zero + number * 1000), completion: text(zero + number * 1000 + 500),
    action: "commit", state: "completed", writer: "w",
  }));
  store.apply({ now_ms: Date.now(), reset: true, gone: [], entries, parts: {} });
  chart.fit();
  chart.draw();
}"""

#: How far the instants that are found at the bars are from those, in milliseconds.
AWAY = """() => {
  const { chart } = lakelatch;
  const time = (x) => chart.start + ((x - chart.left) / (chart.width - chart.left)) * chart.span;
  return chart.drawn.map(([, left, top]) => chart.at(left + 1, top + 1).start - time(left + 1));
}"""
