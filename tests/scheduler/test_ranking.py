"""Which listener claims first."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from monque_core.scheduler.ranking import rank

LISTENERS = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8, unique=True)


@given(key=st.text(), listeners=LISTENERS)
def test_each_place_belongs_to_one_listener(key: str, listeners: list[str]) -> None:
    places = sorted(rank(key, one, listeners) for one in listeners)

    assert places == list(range(len(listeners)))


@given(key=st.text(), listeners=LISTENERS)
def test_the_order_does_not_depend_on_who_else_listens(key: str, listeners: list[str]) -> None:
    first, *others = sorted(listeners, key=lambda one: rank(key, one, listeners))

    assert [rank(key, one, others) for one in others] == list(range(len(others)))
    assert all(rank(key, first, [first, other]) == 0 for other in others)


def test_each_listener_is_first_for_about_as_many() -> None:
    listeners = ["a", "b", "c"]

    firsts = Counter(
        one for key in range(3000) for one in listeners if rank(str(key), one, listeners) == 0
    )

    assert all(800 < count < 1200 for count in firsts.values())
