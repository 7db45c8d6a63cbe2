"""How often to look at the queue."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from monque_core.scheduler.polling import SteadyPolling
from monque_core.store.change_stream import streams_lag
from tests.support.stores import open_store

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("sees_changes", "is_standby", "lags", "gap"),
    [
        (False, False, False, 1),
        (True, False, False, 30),
        (True, False, True, 1),
        (False, False, True, 1),
        # The listeners, which look often, wake the instances on standby.
        (False, True, True, 30),
    ],
)
def test_a_stream_spares_polls_unless_it_may_be_late(
    sees_changes: bool, is_standby: bool, lags: bool, gap: float
) -> None:
    polling = SteadyPolling(SECOND, 30 * SECOND, streams_lag=lags)
    polling.sees_changes, polling.is_standby = sees_changes, is_standby
    assert polling.gap() == gap


def test_a_stream_that_may_be_late_never_makes_polls_rarer() -> None:
    polling = SteadyPolling(60 * SECOND, 30 * SECOND, streams_lag=True)
    polling.sees_changes = True
    assert polling.gap() == 30


def test_streams_may_be_late_through_a_mongos() -> None:
    assert streams_lag({"msg": "isdbgrid", "maxWireVersion": 17})
    assert not streams_lag({"setName": "monque", "maxWireVersion": 17})


async def test_streams_of_a_replica_set_are_in_time(db: AsyncDatabase[dict[str, object]]) -> None:
    assert not (await open_store(db)).streams_lag
