"""The page of error codes has a section for each kind, by the name that stands in URLs, and the code of its texts."""

from __future__ import annotations

import re
from pathlib import Path

from lakelatch import errors

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"


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
