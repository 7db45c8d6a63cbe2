"""Finding the providers of a container by type and name."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
from dependency_injector import containers, providers
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core import Monque
from monque_di import MonqueContainer, MonqueService, RunScoped
from monque_di.provider_index import ProviderIndex, provided_type, root_container
from tests.support.applications import application

if TYPE_CHECKING:
    from collections.abc import Iterator

quick = settings(max_examples=100)


class Mailer: ...


class SmtpMailer(Mailer): ...


class Ledger: ...


def open_mailer() -> Mailer:
    return Mailer()


def manage() -> Iterator[Mailer]:
    yield Mailer()


def paths(offers: list[Any]) -> list[str]:
    return sorted(entry.path for entry in offers)


class Deepest(containers.DeclarativeContainer):
    mailer = providers.Factory(SmtpMailer)
    ledger = providers.Singleton(Ledger)


class Deep(containers.DeclarativeContainer):
    deepest = providers.Container(Deepest)
    mailer = providers.Factory(Mailer)


def test_nested_containers_are_searched_to_the_bottom() -> None:
    index = ProviderIndex(application(None, deep=providers.Container(Deep)))
    assert paths(index.by_type(Ledger)) == ["deep.deepest.ledger"]
    assert paths(index.by_type(Mailer)) == ["deep.mailer"]
    assert paths(index.by_type(SmtpMailer)) == ["deep.deepest.mailer"]
    assert paths(index.by_name("mailer", Any)) == ["deep.mailer"]
    assert paths(index.for_class(SmtpMailer)) == ["deep.deepest.mailer"]


def test_a_container_of_ours_shows_the_service_and_the_instance_and_nothing_else() -> None:
    index = ProviderIndex(application("a database"))
    assert paths(index.by_type(MonqueService)) == ["monque.service"]
    assert paths(index.by_type(Monque)) == ["monque.monque"]
    for name in MonqueContainer.providers:
        found = paths(index.by_name(name, Any))
        assert found == ([f"monque.{name}"] if name in {"monque", "service"} else [])


def test_what_is_ours_is_not_taken_for_a_duplicate_name_of_another_type() -> None:
    index = ProviderIndex(application("a database"))
    for name in ("monque", "service", "job"):
        assert index.by_name(name, Mailer) == []
        assert index.by_name(name, str) == []
        assert len(index.by_name(name, inspect.Parameter.empty)) == 1


def test_a_subclass_of_our_container_shows_what_it_adds() -> None:
    class Queue(MonqueContainer):
        mailer = providers.Factory(Mailer)

    index = ProviderIndex(Queue())
    assert paths(index.by_type(Mailer)) == ["mailer"]
    assert paths(index.by_type(MonqueService)) == ["service"]
    assert index.by_name("instance_slot", Any) == []


def test_an_overridden_provider_is_still_offered_under_its_own_type() -> None:
    app = application(None, mailer=providers.Factory(Mailer))
    app.mailer.override(providers.Object("a fake"))
    assert paths(ProviderIndex(app).by_type(Mailer)) == ["mailer"]


def test_a_dependency_is_offered_under_what_it_demands_or_is_given() -> None:
    class Shop(containers.DeclarativeContainer):
        demanded = providers.Dependency(instance_of=Mailer)
        given: Any = providers.Dependency()
        by_default: Any = providers.Dependency(default=providers.Factory(SmtpMailer))
        never: Any = providers.Dependency()

    shop = providers.Container(
        Shop, demanded=providers.Factory(SmtpMailer), given=providers.Factory(Ledger)
    )
    index = ProviderIndex(application(None, shop=shop))
    assert paths(index.by_type(Mailer)) == ["shop.demanded"]
    assert paths(index.by_type(Ledger)) == ["shop.given"]
    assert paths(index.by_type(SmtpMailer)) == ["shop.by_default"]
    assert paths(index.by_name("never", Any)) == ["shop.never"]


class Services(containers.DeclarativeContainer):
    """As dependency-injector's own examples have it: what it needs comes from elsewhere."""

    core = providers.DependenciesContainer()
    ledger = providers.Dependency(instance_of=Ledger)
    mail: Any = providers.Factory(dict, mailer=core.mailer, ledger=ledger)


def test_what_one_container_gives_to_another_is_one_offer() -> None:
    core = providers.Container(Deepest)
    services = providers.Container(Services, core=core, ledger=core.ledger)
    index = ProviderIndex(application(None, core=core, services=services))
    assert paths(index.by_type(SmtpMailer)) == ["core.mailer"]
    assert paths(index.by_type(Ledger)) == ["core.ledger"]
    assert paths(index.by_name("ledger", Any)) == ["core.ledger"]


def test_what_one_container_gives_to_another_is_found_whichever_comes_first() -> None:
    class App(containers.DeclarativeContainer):
        ledger = providers.Singleton(Ledger)
        core = providers.Container(Deepest)
        a_services = providers.Container(Services, core=core, ledger=ledger)

    index = ProviderIndex(App())
    assert paths(index.by_type(SmtpMailer)) == ["core.mailer"]
    assert paths(index.by_type(Ledger)) == ["core.ledger", "ledger"]


FORMS: list[tuple[Any, object]] = [
    (providers.Factory(Mailer), Mailer),
    (providers.Factory(f"{__name__}.Mailer"), Mailer),
    (providers.Singleton(Mailer), Mailer),
    (providers.ThreadLocalSingleton(Mailer), Mailer),
    (providers.ContextLocalSingleton(Mailer), Mailer),
    (providers.Callable(open_mailer), Mailer),
    (providers.Resource(open_mailer), Mailer),
    (providers.Object(Mailer()), Mailer),
    (RunScoped(manage), Mailer),
    (providers.AbstractFactory(Mailer), Mailer),
    (providers.Object(Mailer), type),
    (providers.Configuration(), dict),
    (providers.Configuration().some.option, None),
    (providers.Factory(Mailer).provider, None),
    (providers.Factory(Mailer).provided, None),
    (providers.Factory(Mailer).provided.host, None),
    (providers.Factory(Mailer).provided.host.call(), None),
    (providers.DelegatedFactory(Mailer), None),
    (providers.FactoryAggregate(one=providers.Factory(Mailer)), None),
    (providers.Selector(lambda: "one", one=providers.Factory(Mailer)), None),
    (providers.List(providers.Factory(Mailer)), None),
    (providers.Dict(one=providers.Factory(Mailer)), None),
    (providers.Dependency(), None),
    (providers.Factory(), None),
    (providers.Provider(), None),
]


@pytest.mark.parametrize(("provider", "form"), FORMS)
def test_what_a_provider_provides_is_reported_without_calling_it(
    provider: Any, form: object
) -> None:
    assert provided_type(provider) == form


def test_two_offers_are_reported_apart_by_path_and_type() -> None:
    index = ProviderIndex(
        application(None, mailer=providers.Factory(Mailer), deep=providers.Container(Deep))
    )
    assert sorted(str(entry) for entry in index.by_type(Mailer)) == [
        "deep.mailer (Mailer)",
        "mailer (Mailer)",
    ]
    (entry,) = ProviderIndex(application(None, items=providers.List())).by_name("items", Any)
    assert str(entry) == "items"


def test_the_application_is_found_from_any_container_in_it() -> None:
    app: Any = application(None, deep=providers.Container(Deep))
    inner = app.deep.container.deepest.container
    for container in (app, app.deep, app.deep.deepest, inner, app.monque):
        assert root_container(container) is app


@pytest.mark.parametrize("wrong", [None, {}, Deep, providers.Factory(Mailer), "app"])
def test_what_is_not_a_container_is_reported(wrong: object) -> None:
    with pytest.raises(TypeError, match="expected an instance of a container, not"):
        root_container(wrong)


@quick
@given(st.data())
def test_of_any_family_of_classes_the_exact_ones_come_first(data: st.DataObject) -> None:
    family: list[type] = [type("Root", (), {})]
    for place in range(data.draw(st.integers(0, 6))):
        parent = data.draw(st.sampled_from(family))
        family.append(type(f"Class{place}", (parent,), {}))
    offered = data.draw(st.lists(st.sampled_from(family), max_size=6))
    wanted = data.draw(st.sampled_from(family))

    app = application(
        None, **{f"entry{place}": providers.Factory(kind) for place, kind in enumerate(offered)}
    )
    exact = [f"entry{place}" for place, kind in enumerate(offered) if kind is wanted]
    derived = [f"entry{place}" for place, kind in enumerate(offered) if issubclass(kind, wanted)]
    assert paths(ProviderIndex(app).by_type(wanted)) == sorted(exact or derived)
