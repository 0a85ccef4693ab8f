"""What pages show, happens: every block of code is run, and prints what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blocks import NOT_RUN, Page, needs_spark

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
WITH_BLOCKS = [page for page in PAGES if "```" in page.read_text()]
SHORT = ("docs/start.md",)  # pages with Spark that `make test` runs as well
#: Spark gives a Python process that it starts for a stream ten seconds, which no setting changes. On a busy machine the
#: page is run once more for that, in a new folder, and for nothing else.
WORKER_IS_LATE = "Python worker failed to connect back"


def marked(page: Path) -> object:
    name, spark = str(page.relative_to(ROOT)), needs_spark(page)
    marks = [pytest.mark.spark] if spark else []
    return pytest.param(page, id=name, marks=[*marks, pytest.mark.long] if spark and name not in SHORT else marks)


@pytest.mark.parametrize("page", [marked(page) for page in WITH_BLOCKS])
def test_every_block_of_a_page_runs_and_prints_what_the_page_shows(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Path
) -> None:
    spark = request.getfixturevalue("spark") if needs_spark(page) else None
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        monkeypatch.chdir(folder)
        try:
            assert_page_is_true(Page(page, folder, spark, shows_all=page.name.startswith("from-")))
            return
        except Exception as error:
            if folder.name == "second" or WORKER_IS_LATE not in str(error):
                raise


def assert_page_is_true(page: Page) -> None:
    page.run()


def test_what_is_not_run_says_why_above_a_block() -> None:
    for page in PAGES:
        text = page.read_text()
        for found in NOT_RUN.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            assert len(found[1].split()) > 2, f"{page}:{line}: say why this is not run"
            assert text[found.end() :].lstrip().startswith("```"), f"{page}:{line}: there is no block below"


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        ("```python\nprint(1)\n```\n\n```\n2\n```\n", "it prints\n1\nand the page shows\n2"),
        ("```python\n1 / 0\n```\n", "division by zero"),
        ("```python\nlakelatch\n```\n", "'lakelatch' is not defined"),
        ("<!-- not run: there is no such thing -->\n\n```python\n{...,\n```\n", "'{' was never closed"),
        ("```sh\nlakelatch doctor\n```\n", "`lakelatch doctor` is no command"),
        ("```sh\npip install 'lakelatch[no-such]'\n```\n", "there is no extra no-such"),
        ("```sh\nmake no-such\n```\n", "there is no such target"),
        ("```sh\nkubectl apply\n```\n", "'kubectl' is not known here"),
        ("```json\n{'a': 1}\n```\n", "Expecting property name"),
        ("```yaml\na: [1\n```\n", "expected ',' or ']'"),
        ("```toml\na =\n```\n", "Invalid value"),
        ("```cobol\nSTOP RUN.\n```\n", "no test runs blocks of 'cobol'"),
    ],
)
def test_a_block_that_is_wrong_is_found_out(tmp_path: Path, block: str, fault: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(block)
    with pytest.raises(Exception, match=re.escape(fault)):
        Page(page, tmp_path).run()
