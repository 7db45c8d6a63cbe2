"""How much to claim of which name, decided without I/O and without state.

The dispatcher takes a `Snapshot` of what this instance runs, holds and expects. `plan_claim` turns
it into a `ClaimPlan`. The claimer looks at the queue within the limits of the plan, and
`select_candidates` picks from what the look found.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal

from monque_core.scheduler.source import C
from monque_core.scheduler.wakeups import MANY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LARGEST_CLAIM = 1000
LARGEST_PREFETCH = 2000
LARGEST_LOOK_PER_NAME = 20
"""Names that one look reads one by one; the others wait for the next look."""
_SMALLEST_LARGE_CLAIM = 100
_LONGEST_CLAIM_SECONDS = 0.25
_MOST_CLAIMED_ALONE = 20
_SHORTEST_RUN_SECONDS = 1e-6
_MOST_LOST = 0.5
_FEW_LOST = 0.2
_MOST_CONTENTION = 8
_LONGEST_CONTENTION_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class NameSnapshot:
    """One name with due jobs expected."""

    name: str
    expected: int
    """Due jobs that this instance knows of; `MANY` if the number is unknown."""
    concurrency: int
    """Runs that may overlap, by the limit of the worker and of the instance."""
    free: int
    """Runs that could start now."""
    prefetched: int = 0
    """Claimed jobs that wait for a slot."""
    run_seconds: float | None = None
    """Average duration of a run, None before the first has ended."""
    is_held: bool = False
    """Whether nothing of it may be claimed: it is paused, or waits for isolation."""
    next_is_recovered: bool = False
    """Whether a recovered job waits for a free slot: it is never prefetched."""


@dataclass(frozen=True, slots=True)
class InstanceSnapshot:
    """The limit over all names of the instance."""

    limit: int
    free: int
    """Runs of any name that could start now, this source's share of them."""
    prefetched: int
    run_seconds: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What this instance runs, holds and expects."""

    names: Sequence[NameSnapshot]
    """Names with due jobs expected, the least recently served first."""
    claim_seconds: float = 0.0
    """Average duration of a claim, from the look to the read-back."""
    claim_seconds_per_job: float = 0.0
    instance: InstanceSnapshot | None = None
    """None without a limit over all names."""
    is_contended: bool = False
    """Whether the last look over several names found more than could be claimed."""
    is_isolating: bool = False
    """Whether a suspected poison job runs in isolation."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a claim may take of one name."""

    name: str
    expected: int
    limit: int
    """The most to claim."""
    free: int
    """The part of the limit that would start at once; the rest would be prefetched."""

    def left_over(self, taken: int) -> int:
        """Return how many more are expected after so many were taken."""
        return MANY if self.expected == MANY else self.expected - taken


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """One claim; without demands there is nothing to claim now."""

    demands: Sequence[Demand] = ()
    """The least recently served name first."""
    total: int = 0
    """The most to claim of all names together."""
    look: Literal["first", "all", "each"] = "all"
    """Claim the first job directly, look at all names together, or at each for itself."""
    may_isolate: bool = True
    """Whether a suspected poison job may be claimed."""
    low_water: Mapping[str, int] = field(default_factory=dict)
    """Per name, how few prefetched jobs make another claim worth its round trip."""

    @property
    def limits(self) -> dict[str, int]:
        """Return the most to claim of each name."""
        return {demand.name: demand.limit for demand in self.demands}

    def is_exceeded_by(self, found: int) -> bool:
        """Whether a look that found so many shows that several names compete for this claim."""
        if self.look == "each":
            return found > self.total
        return len(self.demands) > 1 and found == self.total


def plan_claim(snapshot: Snapshot) -> ClaimPlan:
    """Return how much to claim of which name."""
    eligible = [one for one in snapshot.names if not one.is_held]
    low_water: dict[str, int] = {}
    rooms: list[tuple[NameSnapshot, int]] = []
    for one in eligible:
        goal = one.free + _prefetch_goal(one, snapshot, len(eligible))
        low_water[one.name] = goal // 2
        room = goal - one.prefetched
        # With work at hand, wait until a claim is worth its round trip.
        if room > 0 and (not one.prefetched or 2 * room >= goal):
            rooms.append((one, room))
    if snapshot.is_contended:
        rooms = rooms[:LARGEST_LOOK_PER_NAME]
    if not rooms:
        return ClaimPlan(low_water=low_water)
    total = _total(rooms, snapshot)
    # Where names compete, none may take more than twice its equal share of one claim.
    most = max(1, min(total, 2 * total // len(rooms))) if snapshot.is_contended else total
    demands = [
        Demand(
            one.name,
            one.expected,
            min(one.expected, room, most),
            max(0, one.free - one.prefetched),
        )
        for one, room in rooms
    ]
    total = min(total, sum(demand.limit for demand in demands))
    return ClaimPlan(
        demands,
        total,
        _look(demands, total, snapshot),
        may_isolate=not snapshot.is_isolating,
        low_water=low_water,
    )


def next_contention(contention: int, asked: int, claimed: int) -> int:
    """Return how contended the queue is, after so many of the chosen jobs could be claimed.

    Instances that look at the same time see the same first jobs, and lose most of them to each
    other. Each step doubles how long they wait before they look again, at random, so that fewer
    look at the same time.
    """
    lost = asked - claimed
    if lost > asked * _MOST_LOST:
        return min(_MOST_CONTENTION, contention + 1)
    return max(0, contention - 1) if lost <= asked * _FEW_LOST else contention


def contention_pause(contention: int, claim_seconds: float) -> float:
    """Return how many seconds to wait before the next look."""
    if not contention:
        return 0.0
    longest = min(_LONGEST_CONTENTION_SECONDS, claim_seconds * (1 << contention))
    return random.uniform(0.0, longest)


def _prefetch_goal(one: NameSnapshot, snapshot: Snapshot, contenders: int) -> int:
    """Return how many jobs of a name to hold beyond its free slots."""
    if one.next_is_recovered:
        return 0
    own = _prefetch(one.run_seconds, one.concurrency, snapshot.claim_seconds)
    if snapshot.instance is None:
        return own
    shared = _shared_prefetch(snapshot)
    if not shared:
        return 0
    # Names that compete for the same slots share what is prefetched, so that the one with the
    # shortest runs does not hand every slot to itself; and each has at least one in line.
    return max(1, min(own, -(-shared // contenders)))


def _prefetch(run_seconds: float | None, slots: int, claim_seconds: float) -> int:
    """Return how many jobs these slots finish while two claims are made."""
    if run_seconds is None:
        return 0
    # More is claimed when half of it has started: the other half lasts until the claim returns.
    work = slots * claim_seconds / max(run_seconds, _SHORTEST_RUN_SECONDS)
    return min(LARGEST_PREFETCH, int(2 * work))


def _shared_prefetch(snapshot: Snapshot) -> int:
    instance = snapshot.instance
    if instance is None:
        return 0
    return _prefetch(instance.run_seconds, instance.limit, snapshot.claim_seconds)


def _total(rooms: Sequence[tuple[NameSnapshot, int]], snapshot: Snapshot) -> int:
    # Jobs with large documents take long to claim, so fewer of them are claimed at a time.
    per_job = max(snapshot.claim_seconds_per_job, _SHORTEST_RUN_SECONDS)
    in_time = int(_LONGEST_CLAIM_SECONDS / per_job)
    most = min(LARGEST_CLAIM, max(_SMALLEST_LARGE_CLAIM, in_time))
    total = sum(min(one.expected, room) for one, room in rooms)
    instance = snapshot.instance
    if instance is not None:
        prefetch = max(len(rooms), _shared_prefetch(snapshot))
        total = min(total, instance.free + prefetch - instance.prefetched)
    return min(most, max(1, total))


def _look(
    demands: Sequence[Demand], total: int, snapshot: Snapshot
) -> Literal["first", "all", "each"]:
    if len(demands) > 1:
        return "each" if snapshot.is_contended else "all"
    (only,) = demands
    is_single = total == 1 and only.free > 0
    return "first" if is_single and not snapshot.is_isolating else "all"


@dataclass(slots=True)
class Selection(Generic[C]):
    """Which candidates to claim, and what the look showed about the rest of the queue."""

    together: list[C] = field(default_factory=list)
    """Fresh jobs, claimed in one batch."""
    alone: list[C] = field(default_factory=list)
    """Recovered jobs, each claimed by itself into a free slot."""
    picked: Sequence[str] = ()
    """The names that had their turn, in that order."""
    remaining: dict[str, int] = field(default_factory=dict)
    """Per name, how many more are expected to be due."""
    waiting_recovered: set[str] = field(default_factory=set)
    """Names with a recovered job that waits for a free slot."""
    waiting_suspects: set[str] = field(default_factory=set)
    """Names with a suspected poison job that waits for isolation."""
    is_contended: bool = False
    """Whether more jobs of several names are due than the plan takes."""

    @property
    def size(self) -> int:
        """Return how many candidates are to be claimed."""
        return len(self.together) + len(self.alone)


def select_candidates(
    plan: ClaimPlan,
    candidates: Sequence[C],
    is_suspect: Callable[[C], bool],
    *,
    is_contended: bool,
) -> Selection[C]:
    """Batch fresh jobs; pick recovered jobs one at a time, only into a free slot."""
    by_name: dict[str, list[C]] = {demand.name: [] for demand in plan.demands}
    for candidate in candidates:
        by_name[candidate.name].append(candidate)
    chosen = _share_out(by_name, plan)
    selection = Selection[C](picked=_picked(chosen, plan), is_contended=is_contended)
    free = {demand.name: demand.free for demand in plan.demands}
    taken = dict.fromkeys(free, 0)
    recovered: list[C] = []
    for candidate in chosen:
        taken[candidate.name] += 1
        if candidate.interrupted:
            recovered.append(candidate)
        else:
            selection.together.append(candidate)
            free[candidate.name] -= 1
    for demand in plan.demands:
        seen, count = len(by_name[demand.name]), taken[demand.name]
        left_over = demand.left_over(count)
        may_be_more = is_contended or seen >= demand.limit or count < seen
        if left_over and may_be_more:
            selection.remaining[demand.name] = left_over
    _select_recovered(selection, recovered, free, is_suspect, may_isolate=plan.may_isolate)
    return selection


def _share_out(by_name: Mapping[str, Sequence[C]], plan: ClaimPlan) -> list[C]:
    """Pick from each name in turn, within its limit, until the total is reached."""
    if len(plan.demands) == 1:
        (only,) = plan.demands
        return list(by_name[only.name][: min(only.limit, plan.total)])
    queues = [deque(by_name[demand.name][: demand.limit]) for demand in plan.demands]
    chosen: list[C] = []
    while queues and len(chosen) < plan.total:
        queues = [queue for queue in queues if queue]
        chosen += [queue.popleft() for queue in queues[: plan.total - len(chosen)]]
    return chosen


def _picked(chosen: Sequence[C], plan: ClaimPlan) -> Sequence[str]:
    if len(plan.demands) == 1:
        return [plan.demands[0].name] if chosen else []
    last_pick = {candidate.name: position for position, candidate in enumerate(chosen)}
    return sorted(last_pick, key=last_pick.__getitem__)


def _select_recovered(
    selection: Selection[C],
    recovered: Sequence[C],
    free: dict[str, int],
    is_suspect: Callable[[C], bool],
    *,
    may_isolate: bool,
) -> None:
    for candidate in recovered:
        name = candidate.name
        suspect = is_suspect(candidate)
        if suspect and not may_isolate:
            selection.waiting_suspects.add(name)
        elif free[name] <= 0:
            selection.waiting_recovered.add(name)
        elif len(selection.alone) < _MOST_CLAIMED_ALONE:
            selection.alone.append(candidate)
            free[name] -= 1
            may_isolate = may_isolate and not suspect
            continue
        selection.remaining[name] = MANY
