"""The words of a statement with their places, so that what Spark is to understand stays the user's own text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from lakelatch.spark.sql.errors import SYNTAX, InvalidStatement

WORD, QUOTED, STRING, MARK = "word", "quoted", "string", "mark"
_TOKEN = re.compile(
    r"""(?P<space>\s+|--(?:\\\n|[^\r\n])*|/\*.*?\*/)
    |(?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
    |(?P<quoted>`(?:``|[^`])*`)
    |(?P<word>\w+)
    |(?P<mark>=>|->|<=>|.)""",
    re.VERBOSE | re.DOTALL,
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True)
class Token:
    """A word, a name in backticks, a text or a mark, from `start` to before `end`."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The word in capitals; empty for all else, so that no quoted text is taken for a keyword."""
        return self.text.upper() if self.kind == WORD else self.text if self.kind == MARK else ""

    @property
    def name(self) -> str:
        """What an identifier names."""
        return self.text[1:-1].replace("``", "`") if self.kind == QUOTED else self.text


def tokens_of(text: str) -> list[Token]:
    """All but spaces and comments."""
    found = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup or "", match[0], match.start(), match.end()))
    return found


@dataclass(frozen=True)
class Name:
    """A table as a statement names it, and where."""

    parts: tuple[str, ...]
    start: int
    end: int

    @property
    def key(self) -> str:
        """The name without regard to capitals; dots within a part are not those between two."""
        return ".".join(part.replace(".", "`.`") for part in self.parts).lower()

    def __str__(self) -> str:
        return ".".join(
            part if re.fullmatch(r"\w+", part) else "`" + part.replace("`", "``") + "`" for part in self.parts
        )


@dataclass
class Cursor:
    """Reads a statement from left to right."""

    text: str
    tokens: Sequence[Token] = field(default_factory=list)
    place: int = 0

    @classmethod
    def of(cls, text: str) -> Cursor:
        found = tokens_of(text)
        while found and found[-1].text == ";":
            found.pop()
        return cls(text, found)

    @property
    def at_end(self) -> bool:
        return self.place >= len(self.tokens)

    @property
    def start(self) -> int:
        """Where the next token begins."""
        return len(self.text) if self.at_end else self.tokens[self.place].start

    def sees(self, *words: str) -> bool:
        """Whether these words come next."""
        found = [token.upper for token in self.tokens[self.place : self.place + len(words)]]
        return found == list(words)

    def take(self, *words: str) -> bool:
        """Goes on behind these words, if they come next."""
        if not self.sees(*words):
            return False
        self.place += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.take(*words):
            raise self.wrong(f"{' '.join(words)} is expected")

    def next(self) -> Token:
        if self.at_end:
            raise self.wrong("the statement goes on")
        self.place += 1
        return self.tokens[self.place - 1]

    def name(self) -> Name:
        """Parts with dots between them."""
        first = self.next()
        if first.kind not in (WORD, QUOTED):
            raise self.wrong("a name is expected", first.start)
        parts, end = [first.name], first.end
        while self.sees("."):
            self.place += 1
            last = self.next()
            parts.append(last.name)
            end = last.end
        return Name(tuple(parts), first.start, end)

    def alias(self, *stops: str) -> str | None:
        """The name behind AS, or one that is none of the words with which a statement goes on."""
        if self.take("AS"):
            return self.next().name
        found = None if self.at_end else self.tokens[self.place]
        if found is None or found.kind not in (WORD, QUOTED) or found.upper in stops:
            return None
        return self.next().name

    def until(self, *stops: str) -> str:
        """The text up to one of these words, or marks, outside of all brackets and CASE ... END; or to the end."""
        start, depth, cases = self.start, 0, 0
        end = start
        while not self.at_end:
            token = self.tokens[self.place]
            if not depth and not cases and token.upper in stops and not self._is_distinct_from():
                break
            if token.kind == MARK:
                depth += (token.text in _OPENING) - (token.text in _CLOSING)
                if depth < 0:
                    break
            elif token.upper == "CASE":
                cases += 1
            elif token.upper == "END" and cases:
                cases -= 1
            end = token.end
            self.place += 1
        return self.text[start:end]

    def _is_distinct_from(self) -> bool:
        """Whether the next word is that of the comparison `a IS DISTINCT FROM b`."""
        return self.sees("FROM") and self.place > 0 and self.tokens[self.place - 1].upper == "DISTINCT"

    def in_brackets(self) -> str:
        """The text in the brackets that come next."""
        self.expect("(")
        found = self.until(")")
        self.expect(")")
        return found

    def items(self) -> list[str]:
        """The parts in brackets, of which commas are between."""
        self.expect("(")
        found = []
        while not self.sees(")"):
            found.append(self.until(",", ")"))
            if not self.take(","):
                break
        self.expect(")")
        return found

    def finish(self) -> None:
        """Errors: `InvalidStatement` if something is left."""
        if not self.at_end:
            raise self.wrong(f"{self.tokens[self.place].text!r} is not understood here")

    def wrong(self, what: str, place: int | None = None) -> InvalidStatement:
        found = self.start if place is None else place
        near = self.text[found : found + 40] or "the end of the statement"
        line = self.text.count("\n", 0, found) + 1
        return InvalidStatement(f"{what}, at line {line}, near {near!r}", SYNTAX)


def replaced(text: str, changes: Sequence[tuple[int, int, str]]) -> str:
    """The text with other words from places to places; all else of it stays."""
    found, last = [], 0
    for start, end, words in sorted(changes):
        found += [text[last:start], words]
        last = end
    return "".join([*found, text[last:]])
