"""Invalid options are rejected at registration; the error names the option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Cron, Exponential, Fixed, Linear, Series
from monque_core.reactive import Cleanup

if TYPE_CHECKING:
    from collections.abc import Callable

    from monque_core import Monque


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"watch": "status"}, "watch"),
        ({"watch": []}, "watch"),
        ({"watch": ["a", "a.b"]}, "watch"),
        ({"watch": ["$a"]}, "watch"),
        ({"watch": ["a..b"]}, "watch"),
        ({"watch": {"a": 0}}, "exclusions"),
        ({"watch": {"a": "constant"}}, "did you mean '\\$constant'"),
        ({"filter": []}, "filter"),
        ({"filter": {"$where": "true"}}, r"\$where"),
        ({"filter": {"at": {"$near": [0, 0]}}}, r"\$near"),
        ({"filter": {"$and": [{"$text": {"$search": "a"}}]}}, r"\$text"),
        ({"filter": {"a": object()}}, "filter"),
        ({"debounce": -1}, "debounce"),
        ({"debounce": "soon"}, "debounce"),
        ({"debounce": 2, "max_wait": 1}, "max_wait"),
        ({"retry": 5}, "retry"),
        ({"reset_on_change": 1}, "reset_on_change"),
        ({"cleanup": "never"}, "cleanup"),
        ({"history": -1}, "history"),
        ({"history": True}, "history"),
        ({"version": 0}, "version"),
        ({"on_version_change": "al"}, "did you mean 'all'"),
        ({"reconcile_on_change": 1}, "reconcile_on_change"),
        ({"concurrency": 0}, "concurrency"),
        ({"timeout": 0}, "timeout"),
    ],
)
async def test_a_bad_option_is_refused_at_registration(
    monque: Monque, options: dict[str, Any], message: str
) -> None:
    given: Any = {"name": "invoice", **options}
    with pytest.raises(ValueError, match=message):
        monque.reactive("orders", **given)


async def test_an_unknown_option_is_refused_with_the_name_the_caller_used(monque: Monque) -> None:
    options: Any = {"name": "invoice", "watchh": ["total"]}
    expected = r"^reactive\(\) got an unexpected keyword argument 'watchh': did you mean 'watch'\?"
    with pytest.raises(TypeError, match=expected):
        monque.reactive("orders", **options)
    options = {"name": "invoice", "concurency": 2}
    with pytest.raises(TypeError, match="did you mean 'concurrency'"):
        monque.reactive("orders", **options)
    options = {"name": "invoice", "zzz": 1}
    with pytest.raises(TypeError, match="'zzz': known are name, watch, filter, "):
        monque.reactive("orders", **options)
    options = {}
    with pytest.raises(TypeError, match=r"^reactive\(\) needs the name of the task"):
        monque.reactive("orders", **options)


@pytest.mark.parametrize("collection", ["", "a$b", "system.users", ".a", "a..b", "x" * 250])
async def test_a_bad_collection_name_is_refused(monque: Monque, collection: str) -> None:
    with pytest.raises(ValueError, match="collection"):
        monque.reactive(collection, name="invoice")


@pytest.mark.parametrize("collection", [None, 5, object(), ["orders"]])
async def test_a_non_collection_is_refused(monque: Monque, collection: Any) -> None:
    with pytest.raises(TypeError, match="collection"):
        monque.reactive(collection, name="invoice")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(0),
        lambda: Fixed(-1),
        lambda: Fixed(1, max_attempts=0),
        lambda: Fixed(1, max_duration=0),
        lambda: Linear(10, cap=5),
        lambda: Exponential(10, cap=5),
        lambda: Exponential(factor=0.5),
        lambda: Series([]),
        lambda: Series([1, 0]),
        lambda: Cron("not a cron"),
        lambda: Cron("* * * * *", timezone="Mars/Olympus"),
        lambda: Cleanup("sometimes"),  # type: ignore[arg-type]  # that is the point
        lambda: Cleanup(keep_for=-1),
    ],
)
def test_a_bad_policy_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make()
