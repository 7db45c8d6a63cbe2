"""What annotations say."""

from __future__ import annotations

import functools
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, Optional, Self, TypeVar, Union

import pytest
from dependency_injector import resources

from monque_di.annotations import (
    format_annotation,
    matches,
    read_annotation,
    returned_type,
    types_in,
)
from tests.support import unseen

if TYPE_CHECKING:
    from tests.di import test_annotations as unseen_module
    from tests.support.unseen import Absent

T = TypeVar("T")


class Mailer:
    class Inner: ...

    @classmethod
    def from_env(cls) -> Self:
        return cls()

    @classmethod
    def named(cls) -> Mailer:
        return cls()

    def sibling(self) -> Self:
        return self


class Smtp(Mailer): ...


class Box(Generic[T]): ...


class Opened:
    def __enter__(self) -> Mailer:
        return Mailer()

    def __exit__(self, *details: object) -> None: ...


class OpenedLater:
    async def __aenter__(self) -> Mailer:
        return Mailer()

    async def __aexit__(self, *details: object) -> None: ...


class OpenedAsItself:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None: ...


class OpenedUntold:
    def __enter__(self):
        return self

    def __exit__(self, *details: object) -> None: ...


class Pool(resources.Resource[Mailer]):
    def init(self, size: int = 1) -> Mailer:
        return Mailer()


class PoolLater(resources.AsyncResource[Mailer]):
    async def init(self) -> Mailer | None:
        return Mailer()


FORMS: list[tuple[object, tuple[object, ...]]] = [
    (Mailer, (Mailer,)),
    (Mailer.Inner, (Mailer.Inner,)),
    (Optional[Mailer], (Mailer,)),  # noqa: UP045  # as many have it
    (Mailer | None, (Mailer,)),
    (Union[Mailer, Smtp, None], (Mailer, Smtp)),  # noqa: UP007
    (Annotated[Mailer, 5], (Mailer,)),
    (Annotated[Mailer | None, 5], (Mailer,)),
    (Annotated[Mailer, 5] | None, (Mailer,)),
    (Box[Mailer], (Box[Mailer],)),
    (Box[int] | None, (Box[int],)),
    (int, ()),
    (str | None, ()),
    (list[Mailer], ()),
    (dict[str, Mailer], ()),
    (tuple[Mailer, ...], ()),
    (type[Mailer], ()),
    (Callable[[], Mailer], ()),
    (Any, ()),
    (object, ()),
    (None, ()),
    (Literal["a"], ()),
    (T, ()),
    (Mailer(), ()),
]


@pytest.mark.parametrize(("annotation", "forms"), FORMS)
def test_what_an_annotation_asks_for(annotation: object, forms: tuple[object, ...]) -> None:
    assert set(types_in(annotation)) == set(forms)


RETURNED: list[tuple[object, bool, object]] = [
    (Mailer, False, Mailer),
    (Box[Mailer], False, Box[Mailer]),
    (functools.partial(Mailer), False, Mailer),
    (functools.partial(functools.partial(Mailer)), False, Mailer),
    (Mailer.from_env, False, Mailer),
    (Smtp.from_env, False, Smtp),
    (Smtp.named, False, Mailer),
    (Opened, False, Opened),
    (Opened, True, Mailer),
    (OpenedLater, True, Mailer),
    (OpenedAsItself, True, OpenedAsItself),
    (OpenedUntold, True, OpenedUntold),
    (Pool, True, Mailer),
    (PoolLater, True, Mailer),
    (Mailer, True, Mailer),
    (len, False, None),
    (lambda: Mailer(), False, None),
    (int, False, int),
]


@pytest.mark.parametrize(("function", "is_manager", "form"), RETURNED)
def test_what_a_call_gives(function: Any, is_manager: bool, form: object) -> None:
    assert returned_type(function, is_manager=is_manager) == form


WRITTEN: list[tuple[object, bool, object]] = [
    ("Mailer", False, Mailer),
    ("Mailer", True, Mailer),
    ("Mailer | None", False, Mailer),
    ("Optional[Mailer]", False, Mailer),
    ("Box[Mailer]", False, Box[Mailer]),
    ("Awaitable[Mailer]", False, Mailer),
    ("Coroutine[Any, Any, Mailer]", False, Mailer),
    ("Iterator[Mailer]", True, Mailer),
    ("Generator[Mailer, None, None]", True, Mailer),
    ("AsyncIterator[Mailer]", True, Mailer),
    ("AsyncGenerator[Mailer, None]", True, Mailer),
    ("AsyncIterator[Box[int]]", True, Box[int]),
    ("AbstractContextManager[Mailer]", True, Mailer),
    ("AbstractAsyncContextManager[Mailer]", True, Mailer),
    ("Awaitable[AbstractContextManager[Mailer]]", True, Mailer),
    ("Annotated[Mailer, 5]", False, Mailer),
    # Imported for type checkers alone, as linters want it.
    ("AsyncIterable[Mailer]", True, Mailer),
    ("Any", False, None),
    ("T", False, None),
    ("not an annotation", False, None),
    ("1 / 0", False, None),
]


@pytest.mark.parametrize(("annotation", "is_manager", "form"), WRITTEN)
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_what_a_return_annotation_tells(
    annotation: str, is_manager: bool, form: object, is_wrapped: bool
) -> None:
    def written() -> None: ...

    written.__annotations__["return"] = annotation

    @functools.wraps(written)
    def wrapper() -> None: ...

    function = wrapper if is_wrapped else written
    assert returned_type(function, is_manager=is_manager) == form


class Mailers(Box[Mailer]): ...


class Boxes(Box[T]): ...


class Far(Boxes[Mailer]): ...


def asking(
    wanted: Absent, more: Box[Absent], nested: unseen_module.Mailer.Inner | None
) -> None: ...


ADMITTED: list[tuple[object, object, bool]] = [
    (Mailer, Mailer, True),
    (Mailer, Smtp, True),
    (Smtp, Mailer, False),
    (Box, Box, True),
    (Box, Mailers, True),
    (Box[Mailer], Mailers, True),
    (Box[Mailer], Box[Mailer], True),
    (Box[Mailer], Box, True),
    (Box, Box[Mailer], True),
    (Box[int], Mailers, False),
    (Box[int], Box[Mailer], False),
    (Box[Any], Mailers, True),
    (Box[Mailer], Box[Any], True),
    (Box.__class_getitem__(T), Mailers, True),  # type: ignore[attr-defined]
    (Box[Mailer], Boxes, True),
    (Box[Mailer], Far, True),
    (Boxes[Mailer], Far, True),
    (Boxes[int], Far, False),
    (Mailer, None, False),
    (Mailer, Any, False),
    (Mailer, int, False),
]


@pytest.mark.parametrize(("wanted", "offered", "is_admitted"), ADMITTED)
def test_what_is_asked_for_admits_itself_and_its_subclasses(
    wanted: object, offered: object, is_admitted: bool
) -> None:
    assert matches(wanted, offered, exactly=False) is is_admitted


def test_only_the_very_class_is_admitted_exactly() -> None:
    assert matches(Mailer, Mailer, exactly=True)
    assert not matches(Mailer, Smtp, exactly=True)
    assert matches(Box[int], Box[int], exactly=True)


def test_a_class_that_is_not_seen_is_compared_by_its_name() -> None:
    wanted, more, nested = (
        read_annotation(asking.__annotations__[name], asking)
        for name in ("wanted", "more", "nested")
    )
    assert matches(wanted, unseen.Absent, exactly=True)
    assert not matches(wanted, unseen.AbsentBase, exactly=False)
    assert not matches(wanted, Mailer, exactly=False)
    assert matches(more, Box[unseen.Absent], exactly=True)
    assert not matches(more, Box[Mailer], exactly=True)
    (inner,) = types_in(nested)
    assert matches(inner, Mailer.Inner, exactly=True)


def test_a_class_is_resolved_where_its_function_was_written() -> None:
    assert (
        read_annotation("Mailer", test_a_class_is_resolved_where_its_function_was_written) is Mailer
    )
    assert read_annotation("Mailer", functools.partial(Mailer.sibling, Mailer())) is Mailer
    assert read_annotation("Mailer.Inner | None", Mailer.sibling) == Mailer.Inner | None
    assert read_annotation("'Mailer'", Mailer.sibling) is Mailer
    assert read_annotation(Mailer, None) is Mailer
    assert read_annotation("Mailer", len) != Mailer


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (inspect.Parameter.empty, ""),
        (Mailer, "Mailer"),
        (Mailer.Inner, "Mailer.Inner"),
        ("Mailer | None", "Mailer | None"),
        (Mailer | None, "Mailer | None"),
        (Optional[Mailer], "Optional[Mailer]"),  # noqa: UP045  # as many have it
        (Box[Mailer], "Box[Mailer]"),
        (list[int], "list[int]"),
        (Annotated[Mailer, "a remark"], "Mailer"),
        (Any, "Any"),
    ],
)
def test_an_annotation_is_shown_as_the_code_has_it(annotation: object, text: str) -> None:
    assert format_annotation(annotation) == text


USED = (AsyncGenerator, AsyncIterator, Awaitable, Coroutine, Generator, Iterator)
MANAGERS = (AbstractAsyncContextManager, AbstractContextManager)
