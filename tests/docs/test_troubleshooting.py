"""The page of error codes has a section for each kind, by the name that stands in URLs, and the code of its texts."""

from __future__ import annotations

import re
from pathlib import Path

from lakelatch import errors

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
FOLDERS = ("engine", "format", "heartbeat", "locks", "spark", "src/lakelatch", "storage", "timeline", "transactions")
SHORTEST = 8
KEYS = re.compile(r"\.?(hoodie|lakelatch)[./][\w./]+(=[A-Z_]+)?")  # options and files, which are put in as well


def test_each_kind_of_error_has_its_section() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.LakelatchError) and kind is not errors.LakelatchError
    ]
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    assert len(kinds) == 9
    for kind in kinds:
        section = sections.get(kind.__name__, "")
        assert f'<a id="{kind.code.lower()}"></a>' in section, kind.__name__
        assert all(f"**{word}**" in section for word in ("Means", "Certain", "Do")), kind.__name__


def test_each_message_that_it_quotes_is_one_of_ours() -> None:
    """By its parts, since `...` stands for what differs from case to case."""
    said = "\n".join(_texts_of(path.read_text()) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    tables = re.findall(r"^\| message .*?\n\n", PAGE.read_text() + "\n\n", re.MULTILINE | re.DOTALL)
    quoted = [text for table in tables for row in table.splitlines()[2:] for text in _quotes_of(row)]
    parts = [part for text in quoted for part in KEYS.sub("...", text).split("...") if len(part) > SHORTEST]
    assert len(tables) == 5 and len(parts) > 40
    missing = [part for part in parts if part.strip() not in said]
    assert not missing, "; ".join(missing)


def _texts_of(source: str) -> str:
    """A module whose texts are whole: pieces in several lines are one, and what is put in is left out."""
    whole = re.sub(r'"\s*\n\s*f?"', "", source)
    return re.sub(r"\{[^{}]*\}", "...", whole)


def _quotes_of(row: str) -> list[str]:
    return re.findall(r"`([^`]+)`", row.split(" | ")[0])
