"""Lays the pages out as the site has them: the navigation of docs/README.md, links within the site, and llms.txt.

Pages are written to be read where they lie. What a site needs besides (a tree of pages, no links to source files) is
made here, from the same text, so the builder sees plain Markdown with trees of pages at the end.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

INDEX = "docs/README.md"
# Pages that lie elsewhere in the repository, and where the site has them.
BESIDE = {
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "AGENTS.md": "project/duties.md",
    "README.md": "project/what-it-is.md",
    "bench/README.md": "project/figures.md",
    "tests/README.md": "project/tests.md",
}
_CODE = re.compile(r"(^ *(?P<fence>```+|~~~+).*?^ *(?P=fence) *$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
_IMAGE_OF_HTML = re.compile(r'(src|srcset)="docs/images/')
_ENTRY = re.compile(r"^- \[(?P<text>[^\]]+)\]\((?P<target>[^)#]+)\)(?:: (?P<about>.*))?$")


@dataclass(frozen=True)
class Entry:
    """A page in the navigation: its path in the repository."""

    section: str
    text: str
    page: str
    about: str


def navigation(root: Path) -> list[Entry]:
    """The pages that docs/README.md lists, with the headings above them."""
    entries, section = [], ""
    for line in (root / INDEX).read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif found := _ENTRY.match(line):
            page = os.path.normpath(f"docs/{found['target']}")
            entries.append(Entry(section, found["text"], page, found["about"] or ""))
    return entries


def children(root: Path, page: str) -> list[str]:
    """The pages in the folder that is called as a page is, or that a README stands for, by name."""
    path = PurePosixPath(page)
    folder = path.parent if path.name == "README.md" else path.with_suffix("")
    if page in (INDEX, *BESIDE) or not (root / folder).is_dir():
        return []
    return sorted(str(one.relative_to(root)) for one in (root / folder).glob("*.md") if one != root / page)


def pages(root: Path) -> list[str]:
    """All pages of the site, by their paths in the repository."""
    return sorted([*BESIDE, *(str(page.relative_to(root)) for page in root.glob("docs/**/*.md"))])


def reached(root: Path) -> list[str]:
    """The pages that the navigation leads to, in its order."""
    listed = [entry.page for entry in navigation(root)]
    return [INDEX, *(one for page in listed for one in (page, *children(root, page)))]


def place(page: str) -> str:
    """Where the site has a page."""
    if page == INDEX:
        return "index.md"
    return BESIDE.get(page) or page.removeprefix("docs/").replace("README.md", "index.md")


@dataclass(frozen=True)
class Site:
    """The repository at `root`, laid out in a folder; `source` is where its files can be looked at, if anywhere."""

    root: Path
    folder: Path
    source: str = ""

    def lay_out(self) -> None:
        """Writes all pages anew, with what they show."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.root / "docs" / "images", self.folder / "extra" / "images")
        shutil.copytree(self.root / "docs", self.folder, ignore=_pages_and_code, dirs_exist_ok=True)
        for page in pages(self.root):
            path = self.folder / place(page)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text(page) + "".join(self._trees(page)))
        shutil.copy(self.root / "docs" / "site" / "conf.py", self.folder)
        (self.folder / "extra" / "llms.txt").write_text(self.short_text())
        (self.folder / "extra" / "llms-full.txt").write_text(self.whole_text())

    def text(self, page: str) -> str:
        """A page with links as the site has them; where it has none, what was linked stays as text."""
        text = _IMAGE_OF_HTML.sub(r'\1="../images/', (self.root / page).read_text())
        parts, end = [], 0
        for code in _CODE.finditer(text):
            parts += [self._linked(page, text[end : code.start()]), code.group()]
            end = code.end()
        return "".join([*parts, self._linked(page, text[end:])])

    def _linked(self, page: str, text: str) -> str:
        return _LINK.sub(lambda found: self._link(page, found), text)

    def _link(self, page: str, found: re.Match[str]) -> str:
        path, hash_, anchor = found["target"].partition("#")
        if "://" in path or not path:
            return found.group()
        target = os.path.normpath(os.path.join(os.path.dirname(page), unquote(path)))
        here = (self.root / target).is_file() and target.startswith("docs/")
        if not (here or target in BESIDE):
            return f"[{found['text']}]({self.source}/{target})" if self.source else found["text"]
        there = place(target) if target.endswith(".md") else target.removeprefix("docs/")
        to = os.path.relpath(there, os.path.dirname(place(page)))
        return f"{found['image']}[{found['text']}]({to}{hash_}{anchor})"

    def _trees(self, page: str) -> Iterator[str]:
        """Sphinx's trees of the pages below one."""
        below = [(place(one).removesuffix(".md"), "") for one in children(self.root, page)]
        if below:
            yield _tree("", [os.path.relpath(one, os.path.dirname(place(page))) for one, _ in below])
        if page == INDEX:
            entries = navigation(self.root)
            for section in dict.fromkeys(entry.section for entry in entries):
                listed = [one for one in entries if one.section == section]
                yield _tree(section, [f"{one.text} <{place(one.page).removesuffix('.md')}>" for one in listed])

    def short_text(self) -> str:
        """llms.txt: docs/README.md, with links to the pages as the site has them."""
        return re.sub(r"\]\(([^):]+)\.md", r"](\1.html", self.text(INDEX))

    def whole_text(self) -> str:
        """llms-full.txt: all pages for users, one after the other."""
        users = [page for page in reached(self.root) if page.startswith("docs/") and "/design/" not in page]
        texts = [f"<!-- {place(page)} -->\n\n{(self.root / page).read_text().strip()}" for page in users]
        return "\n\n".join(texts) + "\n"


def _pages_and_code(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(".md") or name in ("site", "__pycache__")]


def _tree(caption: str, entries: list[str]) -> str:
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return "\n```{toctree}\n" + options + "\n" + "\n".join(entries) + "\n```\n"


def source_of_project() -> str:
    """Where the project says that its source is, or nothing."""
    urls = dict(line.split(", ", 1) for line in metadata("lakelatch").get_all("Project-URL") or ())
    return f"{urls['Source'].rstrip('/')}/blob/main" if "Source" in urls else ""


if __name__ == "__main__":
    Site(Path(__file__).parents[2], Path(sys.argv[1]), source_of_project()).lay_out()
