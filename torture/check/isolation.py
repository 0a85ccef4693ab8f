"""Checks a history of transactions against the isolation that each was promised, as Elle does.

Which versions a transaction read and wrote is in the history, and in which order the versions of a key came is in the
table. So nothing has to be guessed: each transaction has a beginning and a commit, what it read and wrote says which of
these came before which others, and its isolation holds if and only if there is such an order, without a cycle.

- It reads what others committed before its beginning (wr), and not what came after it (rw).
- It writes after those whose versions it replaces have committed, so before its beginning (ww).
- If it is serializable, its beginning and its commit are one moment.
- If both are known, what was acknowledged before another one began is before its beginning (rt).

With beginnings apart from commits that is snapshot isolation; with one moment for each, the graph is Adya's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Key = tuple[str, str]  # the table, and what in it is read and written as one
WW, WR, RW, RT = "ww", "wr", "rw", "rt"
_READS_TRIED = 100  # edges of a part that is wrong, to find its name
_OWN = "own"  # from a transaction's beginning to its commit


@dataclass(frozen=True)
class Observed:
    """One transaction: the version of each key that it read, "" if there was none, and those that it wrote.

    The last of what it wrote of a key is what it left. `began` and `ended` are on one clock, if they are known.
    """

    name: str
    reads: Mapping[Key, str] = field(default_factory=dict)
    writes: Mapping[Key, Sequence[str]] = field(default_factory=dict)
    serializable: bool = False
    committed: bool = True
    began: int | None = None
    ended: int | None = None


@dataclass(frozen=True)
class Anomaly:
    """Something that an isolation forbids, by the name that Adya and Elle have for it."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class _Edge:
    kind: str
    to: int


def find_anomalies(transactions: Collection[Observed], orders: Mapping[Key, Sequence[str]]) -> list[Anomaly]:
    """What the isolation of these transactions forbids; `orders` has the committed versions of each key, in order.

    A committed version whose writer is not among them is taken for a transaction that has written nothing else.
    """
    history = _History(transactions, orders)
    found = list(history.wrong_reads())
    return found or history.cycles()


class _History:
    def __init__(self, transactions: Collection[Observed], orders: Mapping[Key, Sequence[str]]) -> None:
        self._orders = orders
        writers = {(key, one) for each in transactions for key, versions in each.writes.items() for one in versions}
        others = [
            Observed(f"the writer of {_shown(key, version)}", writes={key: (version,)})
            for key, versions in orders.items()
            for version in versions
            if (key, version) not in writers
        ]
        self._transactions = [*transactions, *others]
        self._writers = {
            (key, version): number
            for number, one in enumerate(self._transactions)
            for key, versions in one.writes.items()
            for version in versions
        }
        self._turns = {key: {version: turn for turn, version in enumerate(all_)} for key, all_ in orders.items()}

    # -- reads of what never was --------------------------------------------------------------------------------------

    def wrong_reads(self) -> Iterator[Anomaly]:
        for number, one in enumerate(self._transactions):
            for key, version in one.reads.items() if one.committed else ():
                writer = self._writers.get((key, version))
                if not version or writer == number:
                    continue
                if writer is not None and version != self._transactions[writer].writes[key][-1]:
                    yield Anomaly("G1b", f"{one.name} read {_shown(key, version)}, which its own writer replaced")
                elif version not in self._turns.get(key, {}):
                    yield Anomaly("G1a", f"{one.name} read {_shown(key, version)}, which was never committed")

    # -- the graph ----------------------------------------------------------------------------------------------------

    def cycles(self) -> list[Anomaly]:
        graph = self._graph()
        named: tuple[tuple[str, Collection[str]], ...] = (("G0", (WW, _OWN)), ("G1c", (WW, WR, _OWN)))
        for kind, kinds in named:
            found = _first_cycles(
                {node: [edge for edge in edges if edge.kind in kinds] for node, edges in graph.items()}
            )
            if found:
                return [Anomaly(kind, self._told(cycle)) for cycle in found]
        return [Anomaly(_kind_of(cycle), self._told(cycle)) for cycle in _first_cycles(graph)]

    def _graph(self) -> dict[int, list[_Edge]]:
        """From each beginning (an even number), commit (the next one) and time (those behind) to what is after it."""
        graph: dict[int, list[_Edge]] = {}
        for number, one in enumerate(self._transactions):
            if one.committed:
                begins, commits = self._begins(number), self._commits(number)
                graph[commits] = []
                if begins != commits:
                    graph[begins] = [_Edge(_OWN, commits)]
        for key, versions in self._orders.items():
            writers = [self._writers[key, version] for version in versions]
            for before, after in pairwise(writers):
                _link(graph, WW, self._commits(before), self._begins(after))
        for number, one in enumerate(self._transactions):
            for key, version in one.reads.items() if one.committed else ():
                self._link_read(graph, number, key, version)
        self._link_times(graph)
        return graph

    def _link_read(self, graph: dict[int, list[_Edge]], number: int, key: Key, version: str) -> None:
        versions, turn = self._orders.get(key, ()), self._turns[key][version] if version else -1
        if version and self._writers[key, version] != number:
            _link(graph, WR, self._commits(self._writers[key, version]), self._begins(number))
        if turn + 1 < len(versions):
            after = self._writers[key, versions[turn + 1]]
            if after != number:  # what is behind its own version is linked to that
                _link(graph, RW, self._begins(number), self._commits(after))

    def _link_times(self, graph: dict[int, list[_Edge]]) -> None:
        committed = [(number, one) for number, one in enumerate(self._transactions) if one.committed]
        times = sorted({one.ended for _, one in committed if one.ended is not None})
        first = 2 * len(self._transactions)
        graph.update((first + turn, [_Edge(RT, first + turn + 1)]) for turn in range(len(times)))
        graph[first + len(times)] = []
        for number, one in committed:
            if one.ended is not None:
                _link(graph, RT, self._commits(number), first + bisect_left(times, one.ended))
            if one.began is not None and (turn := bisect_left(times, one.began) - 1) >= 0:
                _link(graph, RT, first + turn, self._begins(number))

    def _begins(self, number: int) -> int:
        return 2 * number + self._transactions[number].serializable

    @staticmethod
    def _commits(number: int) -> int:
        return 2 * number + 1

    def _told(self, cycle: Sequence[tuple[int, _Edge]]) -> str:
        """The transactions of a cycle, in order, each with what puts it before the next one."""
        said = [
            (self._transactions[node // 2].name, edge.kind)
            for node, edge in cycle
            if edge.kind != _OWN and node < 2 * len(self._transactions)
        ]
        names = [name for name, _ in said]
        after = [*names[1:], names[0]]
        return ", ".join(f"{name} before {other} ({kind})" for (name, kind), other in zip(said, after, strict=True))


def _link(graph: dict[int, list[_Edge]], kind: str, before: int, after: int) -> None:
    if before != after and before in graph and after in graph:
        graph[before].append(_Edge(kind, after))


def _kind_of(cycle: Sequence[tuple[int, _Edge]]) -> str:
    kinds = [edge.kind for _, edge in cycle if edge.kind != _OWN]
    count, suffix = kinds.count(RW), "-realtime" if RT in kinds else ""
    if count < 2:
        return f"{'G-single' if count else 'G1c'}{suffix}"
    adjacent = any(one == other == RW for one, other in zip(kinds, [*kinds[1:], kinds[0]], strict=True))
    return f"{'G2' if adjacent else 'G-nonadjacent'}{suffix}"


# -- graphs -----------------------------------------------------------------------------------------------------------

_Graph = Mapping[int, Sequence[_Edge]]


def _first_cycles(graph: _Graph) -> list[list[tuple[int, _Edge]]]:
    """A cycle of each strongly connected part that has any; in time linear in the graph."""
    return [_cycle_in(graph, part) for part in _parts(graph) if len(part) > 1]


def _parts(graph: _Graph) -> Iterator[set[int]]:
    """The strongly connected parts, by Tarjan's algorithm, without recursion."""
    indices: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in graph:
        if root in indices:
            continue
        path: list[tuple[int, Iterator[_Edge]]] = []
        enter: int | None = root
        while enter is not None or path:
            if enter is not None:
                indices[enter] = lowest[enter] = len(indices)
                stack.append(enter)
                on_stack.add(enter)
                path.append((enter, iter(graph[enter])))
                enter = None
            node, edges = path[-1]
            for edge in edges:
                if edge.to not in indices:
                    enter = edge.to
                    break
                if edge.to in on_stack:
                    lowest[node] = min(lowest[node], indices[edge.to])
            if enter is not None:
                continue
            path.pop()
            if path:
                lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
            if lowest[node] == indices[node]:
                part = set[int]()
                while node not in part:
                    part.add(stack.pop())
                on_stack -= part
                yield part


def _cycle_in(graph: _Graph, part: Collection[int]) -> list[tuple[int, _Edge]]:
    """A cycle of a part: one with a single rw if one is found, else the shortest through one of its edges."""
    of_reads = [(node, edge) for node in sorted(part) for edge in graph[node] if edge.kind == RW and edge.to in part]
    for node, edge in of_reads[:_READS_TRIED]:
        rest = _way(graph, part, edge.to, node, lambda one: one.kind != RW)
        if rest is not None:
            return [(node, edge), *rest]
    starts = of_reads or [(node, edge) for node in sorted(part) for edge in graph[node] if edge.to in part]
    node, edge = starts[0]
    return [(node, edge), *(_way(graph, part, edge.to, node, lambda _: True) or [])]


def _way(
    graph: _Graph, part: Collection[int], start: int, end: int, may_take: Callable[[_Edge], bool]
) -> list[tuple[int, _Edge]] | None:
    """The shortest way from one node to another within a part, as each node with the edge that leaves it."""
    came: dict[int, tuple[int, _Edge]] = {}
    waiting, seen = deque([start]), {start}
    while waiting and end not in seen:
        node = waiting.popleft()
        for edge in graph[node]:
            if edge.to in part and edge.to not in seen and may_take(edge):
                seen.add(edge.to)
                came[edge.to] = node, edge
                waiting.append(edge.to)
    if end not in seen:
        return None
    way: list[tuple[int, _Edge]] = []
    while end != start:
        node, edge = came[end]
        way.append((node, edge))
        end = node
    return way[::-1]


def _shown(key: Key, version: str) -> str:
    return f"{key[1]} of {key[0]} as {version} wrote it"


def isolation_holds(transactions: Iterable[Observed], orders: Mapping[Key, Sequence[str]]) -> Iterator[str]:
    """As `find_anomalies`, as sentences of the checker."""
    for anomaly in find_anomalies(list(transactions), orders):
        yield f"the isolation of transactions is broken: {anomaly}"
