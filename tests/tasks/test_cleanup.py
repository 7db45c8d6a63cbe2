"""When the record of a deleted document may be deleted too."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import pytest

from monque_core.tasks.cleanup import CLEANUP_WHEN, Cleanup, CleanupWhen


def test_records_of_deleted_documents_stay_a_day() -> None:
    assert Cleanup() == Cleanup("deleted", 86_400) == Cleanup("deleted", timedelta(days=1))
    assert Cleanup().quiet_time == timedelta(days=1)


def test_every_word_of_the_type_is_known() -> None:
    assert get_args(CleanupWhen) == CLEANUP_WHEN


@pytest.mark.parametrize("when", CLEANUP_WHEN)
@pytest.mark.parametrize("keep_for", [0, 0.5, 3600, timedelta(days=900)])
def test_each_is_accepted(when: CleanupWhen, keep_for: Any) -> None:
    cleanup = Cleanup(when, keep_for)
    assert cleanup.when == when
    assert cleanup.keep_for == cleanup.quiet_time
    assert isinstance(cleanup.keep_for, timedelta)


@pytest.mark.parametrize(
    ("when", "meant"),
    [("delete", "deleted"), ("unmatch", "unmatched"), ("Never", "never"), ("gone", None)],
)
def test_a_typo_gets_a_hint(when: Any, meant: str | None) -> None:
    ending = rf"; did you mean '{meant}'\?$" if meant else "'never'$"
    with pytest.raises(
        ValueError, match=rf"option cleanup.when='{when}' .* one of 'deleted', .*{ending}"
    ):
        Cleanup(when)


@pytest.mark.parametrize("when", [None, 1, True, ["deleted"]])
def test_an_unknown_status_is_refused(when: Any) -> None:
    with pytest.raises(ValueError, match=r"option cleanup.when=.* one of 'deleted'"):
        Cleanup(when)


@pytest.mark.parametrize("keep_for", [-1, "1d", None, True, float("nan")])
def test_what_is_no_duration_is_refused(keep_for: Any) -> None:
    with pytest.raises(ValueError, match=r"option cleanup.keep_for=.* that is not negative"):
        Cleanup("deleted", keep_for)
