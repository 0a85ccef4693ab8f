"""The suite that every lock provider must pass: subclass `LockProviderConformance`, and give `make_provider`."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, TypeVar
from unittest import SkipTest

from lakelatch.errors import InvalidRequest, LakelatchError, LeaseLost, LockTimeout, Unavailable
from lakelatch.locks.contract import TABLE_KEY, Holder, LockProvider, file_group_key
from lakelatch.locks.lease import Lease
from lakelatch.locks.options import WAIT_TIME
from lakelatch.system import process_name
from lakelatch.testing.conformance import in_processes
from lakelatch.testing.conformance.in_processes import Child, in_fork, run_together

SOON_S = 20.0
ODD_KEYS = (
    "",
    ".",
    "..",
    "a/b",
    "a%2Fb",
    "ключ/鍵",
    "with space\n",
    "x.lock",
    "x" * 700,
    file_group_key("d=1/e=2", "0-0"),
)

Result = TypeVar("Result")


class LockProviderConformance:
    """Each test opens its own table below pytest's `tmp_path`, whose URI also serves as a name where nothing is stored.

    Say `across_processes = False` if other processes do not see the locks, and `first_come_first_served = True` if
    waiting threads are served in the order in which they came; then also `names_waiters = True` if `Holder.waiters`
    names them.
    """

    across_processes: ClassVar[bool] = True
    first_come_first_served: ClassVar[bool] = False
    names_waiters: ClassVar[bool] = False

    def make_provider(self, table_uri: str) -> LockProvider:
        """A new provider of this table; all that are made for one URI share their locks."""
        raise NotImplementedError

    @contextmanager
    def providers(self, folder: Path, count: int = 1) -> Iterator[list[LockProvider]]:
        """Several providers of one table, closed at the end."""
        opened = [self.make_provider(f"file://{folder}/table") for _ in range(count)]
        try:
            yield opened
        finally:
            for provider in opened:
                provider.close()

    # Leases

    def test_the_id_of_a_tables_locks_is_that_which_came_first(self, tmp_path: Path) -> None:
        with self.providers(tmp_path, 2) as (one, other):
            if one.lock_id() is None:  # it keeps none
                return
            kept = one.lock_id("1" * 16)
            assert kept and other.lock_id() == kept == other.lock_id("2" * 16) == one.lock_id()

    def test_a_lease_is_valid_until_it_is_released(self, tmp_path: Path) -> None:
        with self.providers(tmp_path) as [provider]:
            lease = provider.acquire(TABLE_KEY, 0)
            assert lease.valid() and lease.key == TABLE_KEY and lease.token > 0
            assert lease.release()
            assert not lease.valid() and not lease.lost.is_set()
            assert_raises(LeaseLost, lease.ensure)

    def test_a_question_leaves_nothing_held(self, tmp_path: Path) -> None:
        with self.providers(tmp_path) as [provider]:
            provider.ask()
            assert provider.holders() == []

    def test_a_second_release_changes_nothing_and_says_so(self, tmp_path: Path) -> None:
        with self.providers(tmp_path, 2) as [first, second]:
            lease = first.acquire(TABLE_KEY, 0)
            assert lease.release()
            successor = second.acquire(TABLE_KEY, 0)
            assert not lease.release()
            assert successor.valid()
            assert_raises(LockTimeout, lambda: first.acquire(TABLE_KEY, 0))
            assert successor.release()

    def test_a_lease_that_was_released_by_two_threads_was_released_once(self, tmp_path: Path) -> None:
        with self.providers(tmp_path) as [provider], ThreadPoolExecutor(2) as pool:
            for _ in range(20):
                lease = provider.acquire(TABLE_KEY, SOON_S)
                assert sorted(pool.map(lambda lease: lease.release(), [lease, lease])) == [False, True]
                assert not lease.lost.is_set()

    def test_leases_are_not_re_entrant(self, tmp_path: Path) -> None:
        with self.providers(tmp_path) as [provider], provider.acquire(TABLE_KEY, 0):
            assert_raises(LockTimeout, lambda: provider.acquire(TABLE_KEY, 0))

    def test_a_timeout_names_the_option_and_the_key(self, tmp_path: Path) -> None:
        with self.providers(tmp_path, 2) as [first, second], first.acquire("some/key", 0) as lease:
            for timeout_s in (0.0, 0.1):
                error = assert_raises(LockTimeout, partial(second.acquire, "some/key", timeout_s))
                assert WAIT_TIME in str(error) and "some/key" in str(error)
            assert lease.valid()

    def test_a_waiter_that_gave_up_leaves_the_key_to_others(self, tmp_path: Path) -> None:
        with self.providers(tmp_path, 3) as [first, second, third]:
            lease = first.acquire(TABLE_KEY, 0)
            assert_raises(LockTimeout, lambda: second.acquire(TABLE_KEY, 0.05))
            assert lease.release()
            assert third.acquire(TABLE_KEY, SOON_S).release()

    def test_a_waiter_is_woken_by_the_release(self, tmp_path: Path) -> None:
        with self.providers(tmp_path, 2) as [first, second], waiting_for() as start:
            lease = first.acquire(TABLE_KEY, 0)
            waiter = start(lambda: second.acquire(TABLE_KEY, SOON_S))
            pause()
            assert not waiter.done()
            assert lease.release()
            assert waiter.result(SOON_S).token > lease.token

    def test_keys_do_not_disturb_each_other(self, tmp_path: Path) -> None:
        with self.providers(tmp_path) as [provider]:
            leases = [provider.acquire(key, 0) for key in ODD_KEYS]
            assert sorted(holder.key for holder in provider.holders()) == sorted(ODD_KEYS)
            for key, lease in zip(ODD_KEYS, leases, strict=True):
                assert lease.valid()
                assert_raises(LockTimeout, partial(provider.acquire, key, 0))
                assert provider.register(key).advance(0) == 1
                assert lease.release()

    def test_tables_do_not_disturb_each_other(self, tmp_path: Path) -> None:
        with self.providers(tmp_path / "a") as [first], self.providers(tmp_path / "b") as [second]:
            assert first.acquire(TABLE_KEY, 0).valid()
            assert second.acquire(TABLE_KEY, 0).valid()
            first.register("time").advance(50)
            assert second.register("time").advance(0) == 1

    def test_waiters_are_served_in_their_order(self, tmp_path: Path) -> None:
        if not self.first_come_first_served:
            raise SkipTest("does not apply: this provider does not promise an order")
        served: list[int] = []
        with self.providers(tmp_path, 2) as [first, second], waiting_for() as start:
            lease = first.acquire(TABLE_KEY, 0)

            def wait(number: int) -> bool:
                with (first, second)[number % 2].acquire(TABLE_KEY, SOON_S):
                    served.append(number)
                return True

            waiters = []
            for number in range(6):
                waiters.append(start(partial(wait, number)))
                until(lambda: first.holders()[0].waiting == len(waiters))
            named = first.holders()[0].waiters
            assert named == (process_name(),) * 6 or (named == () and not self.names_waiters), named
            lease.release()
            assert all(waiter.result(SOON_S) for waiter in waiters)
            assert served == list(range(6))

    def test_a_newcomer_does_not_overtake(self, tmp_path: Path) -> None:
        if not self.first_come_first_served:
            raise SkipTest("does not apply: this provider does not promise an order")
        with self.providers(tmp_path, 2) as [first, second], waiting_for() as start:
            lease = first.acquire(TABLE_KEY, 0)
            for _ in range(20):
                waiter = start(lambda: second.acquire(TABLE_KEY, SOON_S))
                until(lambda: first.holders()[0].waiting == 1)
                lease.release()
                assert_raises(LockTimeout, lambda: first.acquire(TABLE_KEY, 0))
                lease = waiter.result(SOON_S)

    # Tokens and exclusion

    def test_tokens_grow_over_providers(self, tmp_path: Path) -> None:
        tokens = []
        for _ in range(4):
            with self.providers(tmp_path, 2) as opened:
                for provider in opened:
                    with provider.acquire(TABLE_KEY, SOON_S) as lease:
                        tokens.append(lease.token)
        assert tokens == sorted(set(tokens))

    def test_threads_exclude_each_other(self, tmp_path: Path) -> None:
        number = tmp_path / "number"
        number.write_text("")
        with self.providers(tmp_path, 4) as opened, ThreadPoolExecutor(8) as pool:
            work = [pool.submit(in_processes.count_one, opened[turn % 4], TABLE_KEY, number) for turn in range(8 * 25)]
            tokens = [each.result() for each in work]
        assert number.read_text() == "200"
        assert len(set(tokens)) == 200

    def test_processes_exclude_each_other(self, tmp_path: Path) -> None:
        self.needs_processes()
        number = tmp_path / "number"
        number.write_text("")
        with self.providers(tmp_path) as [provider]:
            tokens = run_together(4, in_processes.count_up, provider, TABLE_KEY, number, 25)
        assert number.read_text() == "100"
        assert all(mine == sorted(mine) for mine in tokens)
        assert len({token for mine in tokens for token in mine}) == 100

    def test_a_crash_frees_the_key(self, tmp_path: Path) -> None:
        self.needs_processes()
        with self.providers(tmp_path) as [provider], waiting_for() as start:
            child = Child(in_processes.hold, provider, TABLE_KEY)
            token = child.receive()
            waiter = start(lambda: provider.acquire(TABLE_KEY, SOON_S))
            pause()
            assert not waiter.done() and [holder.token for holder in provider.holders()] == [token]
            child.kill()
            lease = waiter.result(SOON_S)
            assert lease.token > token and [holder.token for holder in provider.holders()] == [lease.token]
            assert lease.release()

    def test_waiters_that_crashed_leave_the_key_to_others(self, tmp_path: Path) -> None:
        self.needs_processes()
        with self.providers(tmp_path) as [provider]:
            lease = provider.acquire(TABLE_KEY, SOON_S)
            children = [Child(in_processes.wait_for, provider, TABLE_KEY) for _ in range(3)]
            assert [child.receive() for child in children] == ["ready"] * 3
            pause()
            assert lease.release()
            until(lambda: any(child.connection.poll() for child in children))
            served = next(child for child in children if child.connection.poll())
            assert served.receive() > lease.token
            for child in children:
                if child is not served:
                    child.kill()
            served.send("release")
            assert served.receive()
            served.kill()
            assert provider.acquire(TABLE_KEY, SOON_S).release()

    def test_a_crashed_holder_is_not_shown(self, tmp_path: Path) -> None:
        self.needs_processes()
        with self.providers(tmp_path) as [provider]:
            child = Child(in_processes.hold, provider, TABLE_KEY)
            child.receive()
            child.kill()
            until(lambda: not provider.holders())

    # Copies

    def test_a_lease_cannot_be_pickled(self, tmp_path: Path) -> None:
        with self.providers(tmp_path) as [provider], provider.acquire(TABLE_KEY, 0) as lease:
            assert_raises(LeaseLost, lambda: pickle.dumps(lease))
            assert lease.valid()

    def test_a_provider_can_be_pickled(self, tmp_path: Path) -> None:
        with self.providers(tmp_path) as [provider], provider.acquire(TABLE_KEY, 0) as lease:
            copy = pickle.loads(pickle.dumps(provider))
            assert_raises(LockTimeout, lambda: copy.acquire(TABLE_KEY, 0))
            copy.close()
            assert lease.valid()

    def test_a_forked_copy_refuses_and_leaves_the_lease_alone(self, tmp_path: Path) -> None:
        with self.providers(tmp_path, 2) as [provider, other]:
            lease = provider.acquire(TABLE_KEY, 0)

            def check() -> None:
                assert not lease.valid()
                assert_raises(LeaseLost, lease.release)
                provider.close()

            assert in_fork(check)
            assert lease.valid()
            assert_raises(LockTimeout, lambda: other.acquire(TABLE_KEY, 0))
            assert lease.release()
            assert other.acquire(TABLE_KEY, 0).release()

    # Operators

    def test_holders_are_shown_by_prefix(self, tmp_path: Path) -> None:
        with self.providers(tmp_path, 2) as [provider, other]:
            keys = [file_group_key("d=2", "b"), file_group_key("d=1", "a"), TABLE_KEY]
            leases: Mapping[str, Lease] = {key: provider.acquire(key, 0) for key in keys}
            assert [holder.key for holder in other.holders()] == sorted(keys)
            shown = other.holders("file_group/d=1/")
            assert [(holder.key, holder.owner, holder.token) for holder in shown] == [
                (keys[1], leases[keys[1]].owner, leases[keys[1]].token)
            ]
            assert all(isinstance(holder, Holder) and holder.since_ms > 0 for holder in shown)
            for lease in leases.values():
                lease.release()
            assert other.holders() == []

    def test_breaking_takes_the_key_away(self, tmp_path: Path) -> None:
        with self.providers(tmp_path, 3) as [provider, other, operator]:
            assert not operator.break_(TABLE_KEY)
            lease = provider.acquire(TABLE_KEY, 0)
            assert operator.break_(TABLE_KEY)
            assert not operator.break_(TABLE_KEY)
            assert lease.lost.wait(SOON_S) and not lease.valid()
            successor = other.acquire(TABLE_KEY, 0)
            assert successor.token > lease.token
            assert not lease.release()
            assert successor.valid()
            assert_raises(LockTimeout, lambda: provider.acquire(TABLE_KEY, 0))
            assert successor.release()

    def test_breaking_serves_who_waits(self, tmp_path: Path) -> None:
        with self.providers(tmp_path, 2) as [provider, other], waiting_for() as start:
            lease = provider.acquire(TABLE_KEY, 0)
            waiters = [start(lambda: other.acquire(TABLE_KEY, SOON_S).release()) for _ in range(3)]
            pause()
            assert provider.break_(TABLE_KEY)
            assert all(waiter.result(SOON_S) for waiter in waiters)
            assert not lease.release()

    def test_closing_releases_leases_and_ends_waiting(self, tmp_path: Path) -> None:
        with self.providers(tmp_path, 3) as [holding, waiting, other], waiting_for() as start:
            lease = holding.acquire(TABLE_KEY, 0)
            waiter = start(lambda: waiting.acquire(TABLE_KEY, SOON_S))
            pause()
            waiting.close()
            assert_raises(Unavailable, lambda: waiter.result(SOON_S / 2))
            holding.close()
            assert not lease.valid()
            assert other.acquire(TABLE_KEY, 0).release()
            assert_raises(InvalidRequest, lambda: holding.acquire(TABLE_KEY, 0))

    # Registers

    def test_a_register_only_grows(self, tmp_path: Path) -> None:
        with self.providers(tmp_path) as [provider]:
            register = provider.register("time")
            assert [register.advance(least) for least in (0, 0, 10, 5, 12)] == [1, 2, 10, 11, 12]
            assert register.advance(0, count=5) == 13
            assert register.advance(100, count=2) == 100
            assert_raises(InvalidRequest, lambda: register.advance(0, count=0))
        with self.providers(tmp_path) as [provider]:
            assert provider.register("time").advance(0) == 102
            assert provider.register("other").advance(0) == 1
            assert provider.register("time").advance(1_800_000_000_000) == 1_800_000_000_000

    def test_a_register_is_atomic_among_threads(self, tmp_path: Path) -> None:
        with self.providers(tmp_path, 4) as opened, ThreadPoolExecutor(8) as pool:
            work = [pool.submit(opened[turn % 4].register("time").advance, 0, 3) for turn in range(8 * 20)]
            _ensure_disjoint(sorted(each.result() for each in work), 8 * 20, 3)

    def test_a_register_is_atomic_among_processes(self, tmp_path: Path) -> None:
        self.needs_processes()
        with self.providers(tmp_path) as [provider]:
            values = run_together(8, in_processes.reserve, provider, "time", 15, 3)
        assert all(mine == sorted(mine) for mine in values)
        _ensure_disjoint(sorted(value for mine in values for value in mine), 8 * 15, 3)

    def needs_processes(self) -> None:
        if not self.across_processes:
            raise SkipTest("does not apply: this provider works within one process")


def _ensure_disjoint(firsts: list[int], number: int, count: int) -> None:
    """Checks that no value was reserved twice, and hardly one in vain.

    A service that is slow may carry a request out twice, and answer once: what it reserved the first time is a gap.
    """
    twice = [pair for pair in pairwise(firsts) if pair[1] - pair[0] < count]
    assert not twice, f"reserved twice, by {count} from each of these on: {twice}"
    assert len(firsts) == number and all(first % count == 1 for first in firsts), firsts
    in_vain = (firsts[-1] - 1) // count + 1 - number
    assert in_vain <= number // 20, f"{in_vain} of {number} reservations were in vain: {firsts}"


def assert_raises(kind: type[LakelatchError], action: Callable[[], object]) -> LakelatchError:
    """The error that the action raises, which must be of this kind."""
    try:
        result = action()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected, and {result!r} came")


@contextmanager
def waiting_for() -> Iterator[Callable[[Callable[[], Result]], Future[Result]]]:
    """Starts actions in threads of their own, which end with the process if a test fails."""

    def start(action: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()

        def run() -> None:
            try:
                future.set_result(action())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    yield start


def pause() -> None:
    """Gives other threads time to begin to wait; a test that needs more of it than there is still passes."""
    threading.Event().wait(0.1)


def until(condition: Callable[[], bool]) -> None:
    """Waits for something that must come true soon; a service that is too busy to answer may be asked again."""
    for _ in range(int(SOON_S / 0.01)):
        with suppress(Unavailable):
            if condition():
                return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come true in time")
