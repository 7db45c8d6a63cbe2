"""How much to claim of which name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core.scheduler.claim_plan import (
    LARGEST_CLAIM,
    LARGEST_LOOK_PER_NAME,
    LARGEST_PREFETCH,
    ClaimPlan,
    Demand,
    InstanceSnapshot,
    NameSnapshot,
    Snapshot,
    contention_pause,
    next_contention,
    plan_claim,
    select_candidates,
)
from monque_core.scheduler.wakeups import MANY


@dataclass(frozen=True)
class Due:
    """Return a candidate as a look returns it."""

    name: str
    number: int = 0
    interrupted: bool = False
    is_suspect: bool = False


def is_suspect(candidate: Due) -> bool:
    return candidate.is_suspect


quick = settings(max_examples=40)


def name_snapshots(name: str) -> st.SearchStrategy[NameSnapshot]:
    return st.builds(
        NameSnapshot,
        name=st.just(name),
        expected=st.one_of(st.integers(1, 3000), st.just(MANY)),
        concurrency=st.integers(1, 200),
        free=st.integers(0, 200),
        prefetched=st.integers(0, 300),
        run_seconds=st.one_of(st.none(), st.floats(0, 10)),
        is_held=st.booleans(),
        next_is_recovered=st.booleans(),
    )


# More names than one look serves, in some examples.
NAMES = st.integers(0, LARGEST_LOOK_PER_NAME + 5).flatmap(
    lambda count: st.tuples(*(name_snapshots(f"name-{number}") for number in range(count)))
)
SNAPSHOTS = st.builds(
    Snapshot,
    names=NAMES,
    claim_seconds=st.floats(0, 2),
    claim_seconds_per_job=st.floats(0, 0.1),
    instance=st.one_of(
        st.none(),
        st.builds(
            InstanceSnapshot,
            limit=st.integers(1, 50),
            free=st.integers(0, 50),
            prefetched=st.integers(0, 100),
            run_seconds=st.one_of(st.none(), st.floats(0, 10)),
        ),
    ),
    is_contended=st.booleans(),
    is_isolating=st.booleans(),
)


class TestPlan:
    def test_nothing_expected_is_nothing_to_claim(self) -> None:
        assert not plan_claim(Snapshot([])).demands

    def test_without_a_free_slot_and_without_a_run_time_nothing_is_claimed(self) -> None:
        assert not plan_claim(Snapshot([NameSnapshot("a", MANY, 5, 0)])).demands

    def test_free_slots_are_filled_before_anything_is_known_of_run_times(self) -> None:
        plan = plan_claim(Snapshot([NameSnapshot("a", MANY, 5, 5)]))

        assert plan.limits == {"a": 5}
        assert plan.total == 5

    def test_no_more_is_claimed_than_is_expected(self) -> None:
        assert plan_claim(Snapshot([NameSnapshot("a", 2, 5, 5)])).limits == {"a": 2}

    def test_one_job_for_one_slot_is_claimed_directly(self) -> None:
        assert plan_claim(Snapshot([NameSnapshot("a", 1, 5, 5)])).look == "first"

    def test_while_a_suspect_is_isolated_even_one_job_is_looked_at_first(self) -> None:
        plan = plan_claim(Snapshot([NameSnapshot("a", 1, 5, 5)], is_isolating=True))

        assert plan.look == "all"
        assert not plan.may_isolate

    def test_short_jobs_are_prefetched_for_two_claims(self) -> None:
        name = NameSnapshot("a", MANY, 10, 10, run_seconds=0.001)

        plan = plan_claim(Snapshot([name], claim_seconds=0.01))

        assert plan.limits == {"a": 10 + 2 * 10 * 10}

    def test_a_recovered_job_is_never_prefetched(self) -> None:
        name = NameSnapshot("a", MANY, 10, 0, run_seconds=0.001, next_is_recovered=True)

        assert not plan_claim(Snapshot([name], claim_seconds=0.01)).demands

    def test_with_work_at_hand_a_claim_waits_until_half_of_it_has_started(self) -> None:
        def plan(prefetched: int) -> ClaimPlan:
            name = NameSnapshot("a", MANY, 10, 0, prefetched, run_seconds=0.001)
            return plan_claim(Snapshot([name], claim_seconds=0.01))

        assert plan(101).demands == ()
        assert plan(101).low_water == {"a": 100}
        assert plan(100).limits == {"a": 100}

    def test_jobs_that_take_long_to_claim_are_claimed_fewer_at_a_time(self) -> None:
        name = NameSnapshot("a", MANY, 5000, 5000)

        assert plan_claim(Snapshot([name])).total == LARGEST_CLAIM
        assert plan_claim(Snapshot([name], claim_seconds_per_job=0.0005)).total == 500
        assert plan_claim(Snapshot([name], claim_seconds_per_job=0.1)).total == 100

    def test_a_name_on_hold_is_left_out(self) -> None:
        names = [NameSnapshot("a", 1, 1, 1, is_held=True), NameSnapshot("b", 1, 1, 1)]

        assert set(plan_claim(Snapshot(names)).limits) == {"b"}

    def test_competing_names_are_looked_at_one_by_one(self) -> None:
        names = [NameSnapshot(name, MANY, 10, 10) for name in "abcd"]

        plan = plan_claim(Snapshot(names, is_contended=True))

        assert plan.look == "each"
        assert plan.limits == dict.fromkeys("abcd", 10)
        assert plan_claim(Snapshot(names)).look == "all"

    def test_of_many_competing_names_the_least_recently_served_come_first(self) -> None:
        names = [NameSnapshot(f"name-{number}", MANY, 1, 1) for number in range(100)]

        plan = plan_claim(Snapshot(names, is_contended=True))

        assert list(plan.limits) == [f"name-{number}" for number in range(LARGEST_LOOK_PER_NAME)]

    def test_names_without_room_keep_no_other_from_its_turn(self) -> None:
        full = [NameSnapshot(f"full-{number}", MANY, 1, 0) for number in range(50)]

        plan = plan_claim(Snapshot([*full, NameSnapshot("free", 1, 1, 1)], is_contended=True))

        assert set(plan.limits) == {"free"}

    @quick
    @given(SNAPSHOTS)
    def test_never_goes_over_a_limit(self, snapshot: Snapshot) -> None:
        plan = plan_claim(snapshot)

        by_name = {one.name: one for one in snapshot.names}
        assert plan.total <= LARGEST_CLAIM
        assert plan.total <= sum(plan.limits.values())
        if snapshot.instance is not None and plan.demands:
            # Each name may have one job prefetched, however short its runs are.
            prefetch = max(LARGEST_PREFETCH, len(plan.demands))
            room = snapshot.instance.free + prefetch - snapshot.instance.prefetched
            assert plan.total <= max(1, room)
        for demand in plan.demands:
            one = by_name[demand.name]
            assert not one.is_held
            assert 1 <= demand.limit <= one.expected
            assert demand.limit <= one.free + LARGEST_PREFETCH - one.prefetched
            assert demand.free <= one.free
            if one.next_is_recovered or (one.run_seconds is None and snapshot.instance is None):
                assert demand.limit <= one.free - one.prefetched

    @quick
    @given(SNAPSHOTS)
    def test_work_is_conserved(self, snapshot: Snapshot) -> None:
        plan = plan_claim(snapshot)

        could_start = {
            one.name: min(one.free, one.expected)
            for one in snapshot.names
            if one.free > one.prefetched == 0 and not one.is_held
        }
        assert bool(plan.demands) >= bool(could_start)
        assert bool(plan.demands) == bool(plan.total)
        if not snapshot.is_contended and snapshot.instance is None:
            # Every name that can start a job is claimed from, and one claim fills the slots
            # unless it would be too large.
            assert set(plan.limits) >= set(could_start)
            smallest_large_claim = 100
            assert plan.total >= min(smallest_large_claim, sum(could_start.values()))

    @quick
    @given(SNAPSHOTS)
    def test_no_name_starves(self, snapshot: Snapshot) -> None:
        # A name that was claimed from goes to the end of the queue. Each name with a free slot
        # must be in a claim within as many claims as the names fit into.
        line = [one for one in snapshot.names if not one.is_held and one.free > one.prefetched]
        line = [one for one in line if not one.prefetched]
        unserved = {one.name for one in line}
        for _ in range(-(-len(line) // LARGEST_LOOK_PER_NAME)):
            plan = plan_claim(Snapshot(line, is_contended=True))
            served = [demand.name for demand in plan.demands]
            unserved.difference_update(served)
            line = [one for one in line if one.name not in served] + [
                one for one in line if one.name in served
            ]

        assert not unserved


def plan_of(limits: dict[str, int], total: int, free: int = 100, **options: bool) -> ClaimPlan:
    demands = [Demand(name, MANY, limit, free) for name, limit in limits.items()]
    return ClaimPlan(demands, total, **options)  # type: ignore[arg-type]


class TestSelection:
    def test_names_take_turns_within_their_limits(self) -> None:
        found = [Due("a", number) for number in range(5)] + [Due("b"), Due("c"), Due("c", 1)]

        selection = select_candidates(
            plan_of({"a": 3, "b": 3, "c": 3}, 6), found, is_suspect, is_contended=True
        )

        assert selection.together == [
            Due("a"),
            Due("b"),
            Due("c"),
            Due("a", 1),
            Due("c", 1),
            Due("a", 2),
        ]
        assert selection.picked == ["b", "c", "a"]

    def test_a_recovered_job_is_claimed_alone_into_a_free_slot(self) -> None:
        fresh, recovered = Due("a"), Due("a", interrupted=True)

        selection = select_candidates(
            plan_of({"a": 5}, 5, free=2), [recovered, fresh], is_suspect, is_contended=False
        )

        assert selection.together == [fresh]
        assert selection.alone == [recovered]

    def test_a_recovered_job_without_a_free_slot_waits(self) -> None:
        fresh, recovered = Due("a"), Due("a", interrupted=True)

        selection = select_candidates(
            plan_of({"a": 5}, 5, free=1), [recovered, fresh], is_suspect, is_contended=False
        )

        assert selection.together == [fresh]
        assert selection.alone == []
        assert selection.waiting_recovered == {"a"}
        assert selection.remaining == {"a": MANY}

    def test_only_one_suspect_is_claimed_at_a_time(self) -> None:
        suspects = [Due("a", number, interrupted=True, is_suspect=True) for number in range(3)]

        selection = select_candidates(
            plan_of({"a": 5}, 5), suspects, is_suspect, is_contended=False
        )

        assert selection.alone == suspects[:1]
        assert selection.waiting_suspects == {"a"}

    def test_no_suspect_is_claimed_while_another_is_isolated(self) -> None:
        suspect, recovered = Due("a", 0, True, True), Due("a", 1, True)

        selection = select_candidates(
            plan_of({"a": 5}, 5, may_isolate=False),
            [suspect, recovered],
            is_suspect,
            is_contended=False,
        )

        assert selection.alone == [recovered]
        assert selection.waiting_suspects == {"a"}

    def test_a_look_that_found_less_than_it_might_have_leaves_nothing(self) -> None:
        selection = select_candidates(
            plan_of({"a": 5}, 5), [Due("a")], is_suspect, is_contended=False
        )

        assert selection.remaining == {}

    def test_a_look_that_found_all_it_asked_for_expects_more(self) -> None:
        found = [Due("a", number) for number in range(5)]

        selection = select_candidates(plan_of({"a": 5}, 5), found, is_suspect, is_contended=False)

        assert selection.remaining == {"a": MANY}

    @given(
        st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 20), min_size=1),
        st.integers(1, 40),
        st.integers(0, 10),
        st.lists(
            st.builds(Due, st.sampled_from("abcdef"), st.integers(), st.booleans(), st.booleans())
        ),
    )
    def test_never_goes_over_a_limit(
        self, limits: dict[str, int], total: int, free: int, found: list[Due]
    ) -> None:
        found = [one for one in found if one.name in limits]

        selection = select_candidates(
            plan_of(limits, total, free), found, is_suspect, is_contended=True
        )

        chosen = [*selection.together, *selection.alone]
        assert len(chosen) <= total
        per_name = Counter(one.name for one in chosen)
        assert all(per_name[name] <= limit for name, limit in limits.items())
        fresh = Counter(one.name for one in selection.together)
        for name, count in Counter(one.name for one in selection.alone).items():
            assert count + fresh[name] <= free
        assert sum(one.is_suspect for one in selection.alone) <= 1
        assert not any(one.interrupted for one in selection.together)

    @given(
        st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 20), min_size=1),
        st.integers(1, 40),
        st.lists(st.builds(Due, st.sampled_from("abcdef"), st.integers())),
    )
    def test_work_is_conserved_and_the_first_name_never_passed_over(
        self, limits: dict[str, int], total: int, found: list[Due]
    ) -> None:
        found = [one for one in found if one.name in limits]
        due = Counter(one.name for one in found)

        selection = select_candidates(plan_of(limits, total), found, is_suspect, is_contended=True)

        allowed = sum(min(due[name], limit) for name, limit in limits.items())
        assert len(selection.together) == min(total, allowed)
        in_line = [name for name in limits if due[name]]
        assert set(in_line[:total]) <= set(selection.picked)


class TestContention:
    def test_claims_that_lose_most_jobs_to_others_become_rarer(self) -> None:
        contention = 0
        for _ in range(3):
            contention = next_contention(contention, asked=100, claimed=20)

        assert contention == 3

    def test_claims_that_lose_nothing_become_more_frequent_again(self) -> None:
        assert next_contention(3, asked=100, claimed=100) == 2
        assert next_contention(0, asked=100, claimed=100) == 0

    def test_claims_that_lose_some_jobs_stay_as_frequent(self) -> None:
        assert next_contention(3, asked=100, claimed=70) == 3

    def test_a_single_job_that_was_lost_counts(self) -> None:
        assert next_contention(0, asked=1, claimed=0) == 1

    @given(contention=st.integers(0, 8), lost=st.integers(0, 1000))
    def test_contention_has_bounds(self, contention: int, lost: int) -> None:
        assert 0 <= next_contention(contention, asked=1000, claimed=1000 - lost) <= 8

    @given(contention=st.integers(1, 8), claim_seconds=st.floats(0, 10))
    def test_pauses_are_short(self, contention: int, claim_seconds: float) -> None:
        pause = contention_pause(contention, claim_seconds)

        assert 0 <= pause <= min(1, claim_seconds * 2**contention)

    def test_without_contention_there_is_no_pause(self) -> None:
        assert contention_pause(0, 1.0) == 0
