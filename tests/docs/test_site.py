"""The site leads to every page once, and every link leads somewhere; Sphinx, which `make docs` needs, is not needed."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from staging import INDEX, Site, navigation, pages, place, reached

import lakelatch

ROOT = Path(__file__).parents[2]
PARSER = MarkdownIt("commonmark").enable("table")
OF_HTML = re.compile(r'<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)="([^"]+)"')
HOST = re.compile(r"(localhost|127\.0\.0\.1|[\w-]+(\.[\w-]+)+)(:\d+)?")


@lru_cache
def parsed(text: str) -> list[Token]:
    return PARSER.parse(text)


def tokens_of(text: str) -> Iterator[Token]:
    for token in parsed(text):
        yield token
        yield from token.children or ()


@lru_cache
def anchors_of(text: str) -> set[str]:
    """What GitHub, and the site, call the headings of a page."""
    seen: Counter[str] = Counter()
    anchors = set()
    for opening, inline in pairwise(parsed(text)):
        if opening.type == "heading_open":
            shown = "".join(one.content for one in inline.children or () if one.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
            anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return anchors | set(re.findall(r'<a id="([^"]+)">', text))


def links_of(text: str) -> list[str]:
    found = []
    for token in tokens_of(text):
        found += [str(token.attrs[name]) for name in ("href", "src") if name in token.attrs]
        if token.type in ("html_block", "html_inline"):
            found += OF_HTML.findall(token.content)
    return found


def dead_links(root: Path, page: str) -> list[str]:
    """Links of a page to files or headings that are not there, and addresses that cannot be one."""
    text = (root / page).read_text()
    dead = []
    for link in links_of(text):
        parts = urlsplit(link)
        if parts.scheme:
            alive = parts.scheme in ("https", "http", "mailto") and (HOST.fullmatch(parts.netloc) or not parts.netloc)
        else:
            target = os.path.normpath(os.path.join(os.path.dirname(page), unquote(parts.path))) if parts.path else page
            alive = (root / target).exists()
            if alive and parts.fragment:
                alive = target.endswith(".md") and unquote(parts.fragment) in anchors_of((root / target).read_text())
        if not alive:
            dead.append(link)
    return dead


def test_every_link_of_every_page_leads_somewhere() -> None:
    dead = {page: links for page in pages(ROOT) if (links := dead_links(ROOT, page))}
    assert not dead


@pytest.mark.parametrize(
    ("link", "alive"),
    [
        ("#a-heading-of-2-words", True),
        ("#a-heading-of-2-words-1", True),
        ("#another", False),
        ("other.md#there", True),
        ("other.md#gone", False),
        ("gone.md", False),
        ("https://example.com/a", True),
        ("https://exa mple", False),
        ("htps://example.com", False),
    ],
)
def test_a_link_that_leads_nowhere_is_found_out(tmp_path: Path, link: str, alive: bool) -> None:
    (tmp_path / "other.md").write_text("# There\n")
    (tmp_path / "page.md").write_text(f"# A heading: of `2` *words*\n\n# A heading of 2 words\n\n[x](<{link}>)\n")
    assert (dead_links(tmp_path, "page.md") == []) is alive


def test_the_navigation_leads_to_every_page_once() -> None:
    there = [page for page in reached(ROOT) if not page.startswith("docs/design/path-")]
    assert Counter(there) == Counter(dict.fromkeys(there, 1))
    assert not set(pages(ROOT)) - set(reached(ROOT)), f"pages that {INDEX} should list"


def test_the_site_has_what_its_pages_and_llms_txt_name(tmp_path: Path) -> None:
    Site(ROOT, tmp_path).lay_out()
    for page in pages(ROOT):
        assert not [link for link in dead_links(tmp_path, place(page)) if not is_of_html(tmp_path, page, link)], page
    listed = re.findall(
        r"^- \[[^\]]+\]\(([^)]+)\.html\): .+", (tmp_path / "extra" / "llms.txt").read_text(), re.MULTILINE
    )
    assert [place(entry.page).removesuffix(".md") for entry in navigation(ROOT)] == listed
    assert all((tmp_path / f"{name}.md").exists() for name in listed)
    assert "## Two writers meet" in (tmp_path / "extra" / "llms-full.txt").read_text()


def is_of_html(folder: Path, page: str, link: str) -> bool:
    """Whether a link of HTML leads to what is copied beside the pages."""
    return (folder / "extra" / os.path.dirname(place(page)) / link).resolve().is_file()


def test_a_link_to_source_leads_to_the_projects_address_or_stays_text(tmp_path: Path) -> None:
    page = "CONTRIBUTING.md"
    assert "of [locks/contract.py](https://example.com/blob/main/locks/contract.py)." in Site(
        ROOT, tmp_path, "https://example.com/blob/main"
    ).text(page)
    assert "of locks/contract.py." in Site(ROOT, tmp_path).text(page)


def test_the_reference_of_python_has_every_public_name() -> None:
    named = re.findall(r"^\.\. auto\w+:: lakelatch\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    public: Any = lakelatch.__all__
    assert sorted({*public, "errors"}) == sorted(named)
