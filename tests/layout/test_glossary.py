"""That one word stands for one thing: the words on the right of the glossary in AGENTS.md are not used."""

from __future__ import annotations

import re
from typing import Any

ALSO_ENGLISH = {  # as which they stay; no test can tell the two
    "asked": "a service is asked for a lease",
    "losing": "the losing job",
    "moving": "a moving target",
    "service": "a lock service, a table service",
}
NAMES_ON_DISK = {  # which do not change
    "doom": {"transactions/early/notes.py", "tests/transactions/marker_server/test_checker.py"},
    "seal": {"storage/checksums.py"},
    "wish": {"locks/etcd/backend.py", "locks/records/sessions.py"},
}
FAULTS_ARE_HEALED = {"testing/", "torture/", "tests/torture/", "tests/testing/", "tests/locks/"}  # Jepsen's word for it
ALLOWED = {
    "room": {"storage/checksums.py"},  # where a format has room for a text
    **NAMES_ON_DISK,
}
ENDINGS = "(s|es|ed|d|ing|er|ers)?"


def refused_words(page: str) -> list[str]:
    rows = re.findall(r"^\|[^|]+\|[^|]+\| ([^|]+) \|$", page.partition("## Glossary")[2], re.MULTILINE)
    return sorted({word.strip() for row in rows[2:] for word in row.split(",")})


def test_refused_words_are_not_used(source_tree: Any) -> None:
    words = refused_words((source_tree.root / "AGENTS.md").read_text())
    assert len(words) > 15 and ALSO_ENGLISH.keys() <= set(words)
    texts = {source.name: source.text for source in source_tree.everything}
    texts |= {str(path.relative_to(source_tree.root)): path.read_text() for path in source_tree.documents}
    small = {name: text.lower().replace("_", " ") for name, text in texts.items()}
    here = {"AGENTS.md", "CHANGELOG.md", "tests/layout/test_glossary.py"}
    found = []
    for word in words:
        if word not in ALSO_ENGLISH:
            # Parts of identifiers count as words: `let_go`, `_wish`.
            pattern = re.compile(rf"(?<![a-z]){word.replace(' ', '[ _]')}{ENDINGS}(?![a-z])", re.IGNORECASE)
            having = (name for name, text in small.items() if word in text)  # the pattern takes far longer
            used = {name for name in having if pattern.search(texts[name])} - here - ALLOWED.get(word, set())
            if word == "heal":
                used = {name for name in used if not name.startswith(tuple(FAULTS_ARE_HEALED))}
            found += [f"{word}: {name}" for name in sorted(used)]
    assert not found
