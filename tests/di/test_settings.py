"""The options of a container."""

from __future__ import annotations

from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from dependency_injector import containers, providers
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core import JobRetention, MonqueOptions
from monque_core.testing import MovableClock
from monque_di import MonqueContainer, lifespan
from monque_di.runtime import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo.asynchronous.database import AsyncDatabase

NAMES = tuple(MonqueOptions.__annotations__)


class TestParsing:
    @pytest.mark.parametrize("nothing", [None, {}])
    def test_nothing_leaves_every_option_to_monque(self, nothing: object) -> None:
        assert Settings.parse(nothing) == Settings(enabled=True, process_jobs=True, options={})

    @settings(max_examples=30)
    @given(
        st.dictionaries(
            st.sampled_from([name for name in NAMES if name != "job_retention"]),
            st.integers() | st.text() | st.none() | st.booleans(),
        ),
        st.booleans(),
        st.booleans(),
    )
    def test_the_options_of_monque_are_handed_on_untouched(
        self, options: dict[str, object], enabled: bool, process_jobs: bool
    ) -> None:
        given = {**options, "enabled": enabled, "process_jobs": process_jobs}
        parsed = Settings.parse(MappingProxyType(given))
        assert parsed.options == options
        assert (parsed.enabled, parsed.process_jobs) == (enabled, process_jobs)

    @pytest.mark.parametrize("name", ["enabled", "process_jobs"])
    @pytest.mark.parametrize("value", ["false", "", 0, 1, None, [], "no"])
    def test_a_flag_is_true_or_false_and_nothing_else(self, name: str, value: object) -> None:
        with pytest.raises(
            ValueError, match=f"{name}={value!r}.*True or False".replace("[", r"\[")
        ):
            Settings.parse({name: value})

    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("enable", "enabled"),
            ("proces_jobs", "process_jobs"),
            ("poll_intervall", "poll_interval"),
            ("colection_name", "collection_name"),
            ("maxRetries", "max_retries"),
        ],
    )
    def test_a_misspelt_option_is_reported_what_was_meant(self, name: str, meant: str) -> None:
        with pytest.raises(ValueError, match=f"unknown option '{name}': did you mean '{meant}'"):
            Settings.parse({name: 1})

    @pytest.mark.parametrize("name", ["zzz", 42, None, ("a", "b")])
    def test_an_option_like_no_other_is_reported_which_there_are(self, name: object) -> None:
        with pytest.raises(ValueError, match="unknown option") as raised:
            Settings.parse({name: 1})
        assert repr(name) in str(raised.value)
        for known in (*NAMES, "enabled", "process_jobs"):
            assert known in str(raised.value)

    @pytest.mark.parametrize("given", [42, "enabled", ["enabled"], {"enabled"}, False, object()])
    def test_what_is_not_a_mapping_is_refused(self, given: object) -> None:
        with pytest.raises(TypeError, match="dict or a Configuration provider"):
            Settings.parse(given)

    def test_a_connection_string_in_their_place_is_not_repeated(self) -> None:
        with pytest.raises(TypeError) as raised:
            Settings.parse("mongodb://shop:correct-horse@db.example.com")
        assert "correct-horse" not in str(raised.value)

    def test_a_retention_may_be_a_mapping_as_configurations_have_it(self) -> None:
        parsed = Settings.parse({"job_retention": {"completed": 60, "interval": 5}})
        assert parsed.options == {"job_retention": JobRetention(completed=60, interval=5)}
        retention = JobRetention(failed=timedelta(days=1))
        assert Settings.parse({"job_retention": retention}).options["job_retention"] is retention
        assert Settings.parse({"job_retention": None}).options["job_retention"] is None

    @pytest.mark.parametrize(
        ("retention", "wrong"), [({"complete": 1}, "complete"), ({"failed": -1}, "failed")]
    )
    def test_a_retention_that_is_wrong_is_refused(self, retention: Any, wrong: str) -> None:
        with pytest.raises((TypeError, ValueError), match=wrong):
            Settings.parse({"job_retention": retention})


class TestInAContainer:
    """Every way in which an application has its options."""

    @pytest.mark.parametrize("is_wrapped", [True, False])
    async def test_may_be_a_mapping(
        self, db: AsyncDatabase[dict[str, Any]], is_wrapped: bool
    ) -> None:
        options: Any = {"collection_name": "tasks"}

        class App(containers.DeclarativeContainer):
            monque = providers.Container(
                MonqueContainer,
                connection=providers.Object(db),
                options=providers.Object(options) if is_wrapped else options,
            )

        await _starts_on_tasks(App(), db)

    async def test_may_be_a_part_of_the_configuration(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        await _starts_on_tasks(
            _configured(db)(config={"monque": {"collection_name": "tasks"}, "smtp": {}}), db
        )

    async def test_may_be_read_from_a_file(
        self, db: AsyncDatabase[dict[str, Any]], tmp_path: Path
    ) -> None:
        file = tmp_path / "config.json"
        file.write_text('{"monque": {"collection_name": "tasks", "job_retention": {"failed": 60}}}')
        app = _configured(db)()
        app.config.from_json(str(file))
        await _starts_on_tasks(app, db)

    async def test_may_come_one_by_one_from_the_environment(
        self, db: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("QUEUE", "tasks")
        monkeypatch.setenv("RETRIES", "3")
        app = _configured(db)()
        app.config.monque.collection_name.from_env("QUEUE")
        app.config.monque.max_retries.from_env("RETRIES", as_=int)
        await _starts_on_tasks(app, db)

    async def test_may_be_made_by_providers(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        class App(containers.DeclarativeContainer):
            config = providers.Configuration()
            clock = providers.Singleton(MovableClock)
            monque = providers.Container(
                MonqueContainer,
                connection=providers.Object(db),
                options=providers.Dict(collection_name=config.collection, clock=clock),
            )

        app = App(config={"collection": "tasks"})
        app.clock().advance(timedelta(days=1))
        await _starts_on_tasks(app, db)
        (document,) = await db["tasks"].find().to_list()
        assert document["createdAt"] == app.clock().now().replace(tzinfo=None)

    async def test_may_be_made_by_an_async_provider(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        async def fetch() -> dict[str, object]:
            return {"collection_name": "tasks"}

        class App(containers.DeclarativeContainer):
            monque = providers.Container(
                MonqueContainer,
                connection=providers.Object(db),
                options=providers.Coroutine(fetch),
            )

        await _starts_on_tasks(App(), db)

    async def test_may_be_missing_in_the_configuration(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        app = _configured(db)(config={"smtp": {}})
        async with lifespan(app):
            assert app.monque.service().is_healthy

    async def test_are_read_at_each_start(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        app = _configured(db)()
        async with lifespan(app):
            await app.monque.service().enqueue("first", 1)
        app.config.from_dict({"monque": {"collection_name": "tasks"}})
        await _starts_on_tasks(app, db)
        assert await db["monque_jobs"].distinct("name") == ["first"]

    @pytest.mark.parametrize(
        ("options", "wrong"),
        [
            ({"poll_interval": "often"}, "poll_interval"),
            ({"poll_intervall": 1}, "did you mean 'poll_interval'"),
            ({"enabled": "yes"}, "enabled='yes'"),
            ({"lock_timeout": 1}, "lock_timeout"),
        ],
    )
    async def test_that_are_wrong_keep_the_application_from_starting(
        self, db: AsyncDatabase[dict[str, Any]], options: dict[str, object], wrong: str
    ) -> None:
        app = _configured(db)(config={"monque": options})
        with pytest.raises(ValueError, match=wrong):
            async with lifespan(app):
                pytest.fail("it started")
        assert not await db.list_collection_names()


def _configured(db: AsyncDatabase[dict[str, Any]]) -> Any:
    class App(containers.DeclarativeContainer):
        config = providers.Configuration()
        monque = providers.Container(
            MonqueContainer, connection=providers.Object(db), options=config.monque
        )

    return App


async def _starts_on_tasks(app: Any, db: AsyncDatabase[dict[str, Any]]) -> None:
    async with lifespan(app):
        assert app.monque.service().is_healthy
        await app.monque.service().enqueue("one", 1)
    assert await db["tasks"].distinct("name") == ["one"]
