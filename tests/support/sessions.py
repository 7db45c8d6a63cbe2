"""Resources that live as long as one run, from every shape of factory."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any

from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    Factory = Callable[..., Any]

AT_ONCE = ("sync generator", "sync manager")
LATER = (
    "async generator",
    "async manager",
    "async factory of a sync manager",
    "async factory of an async manager",
)
SHAPES = (*AT_ONCE, *LATER)


class Session:
    """One opened resource: whether it is still open, and the error that closed it."""

    def __init__(self, label: str, parts: tuple[Any, ...]) -> None:
        self.label = label
        self.parts = parts
        self.is_open = True
        self.seen: BaseException | None = None
        self.thread = threading.current_thread()

    def __repr__(self) -> str:
        return f"<{self.label} {'open' if self.is_open else f'closed with {self.seen!r}'}>"


class Sessions:
    """All sessions of a test, and their opening and closing in order."""

    def __init__(self) -> None:
        self.all: Tally[Session] = Tally()
        self.steps: Tally[str] = Tally()

    def __iter__(self) -> Iterator[Session]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def only(self) -> Session:
        """Return the only session."""
        (session,) = self.all
        return session

    @property
    def open(self) -> list[Session]:
        """Return the sessions that are still open."""
        return [session for session in self.all if session.is_open]

    def factory(
        self,
        shape: str,
        label: str = "session",
        *,
        opening: Callable[[], Any] | None = None,
        closing: Callable[[BaseException | None], Any] | None = None,
        swallows: bool = False,
    ) -> Factory:
        """Return a factory of a shape.

        `opening` and `closing` are called before the session is opened and closed, and awaited if
        necessary; with `swallows`, the session suppresses the run's error.
        """
        life = _Life(self, label, opening, closing, swallows=swallows)
        return {
            "sync generator": _sync_generator,
            "sync manager": _sync_manager,
            "async generator": _async_generator,
            "async manager": _async_manager,
            "async factory of a sync manager": _async_factory_of_sync,
            "async factory of an async manager": _async_factory_of_async,
        }[shape](life)


class _Life:
    def __init__(
        self,
        sessions: Sessions,
        label: str,
        opening: Callable[[], Any] | None,
        closing: Callable[[BaseException | None], Any] | None,
        *,
        swallows: bool,
    ) -> None:
        self.sessions = sessions
        self.label = label
        self.opening = opening
        self.closing = closing
        self.swallows = swallows

    def begin(self, parts: tuple[Any, ...]) -> Session:
        if self.opening is not None:
            self.opening()
        return self._begun(parts)

    async def begin_later(self, parts: tuple[Any, ...]) -> Session:
        await asyncio.sleep(0)
        await _settled(self.opening() if self.opening is not None else None)
        return self._begun(parts)

    def end(self, session: Session, error: BaseException | None) -> None:
        try:
            if self.closing is not None:
                self.closing(error)
        finally:
            self._ended(session, error)

    async def end_later(self, session: Session, error: BaseException | None) -> None:
        try:
            await asyncio.sleep(0)
            await _settled(self.closing(error) if self.closing is not None else None)
        finally:
            self._ended(session, error)

    def _begun(self, parts: tuple[Any, ...]) -> Session:
        session = Session(self.label, parts)
        self.sessions.all.add(session)
        self.sessions.steps.add(f"open {self.label}")
        return session

    def _ended(self, session: Session, error: BaseException | None) -> None:
        assert session.is_open, f"{session} is closed a second time"
        session.is_open = False
        session.seen = error
        self.sessions.steps.add(f"close {self.label}")


def _sync_generator(life: _Life) -> Factory:
    def generate(*parts: Any) -> Iterator[Session]:
        session = life.begin(parts)
        try:
            yield session
        except BaseException as error:
            life.end(session, error)
            if not life.swallows:
                raise
        else:
            life.end(session, None)

    return generate


def _async_generator(life: _Life) -> Factory:
    async def generate(*parts: Any) -> AsyncIterator[Session]:
        session = await life.begin_later(parts)
        try:
            yield session
        except BaseException as error:
            await life.end_later(session, error)
            if not life.swallows:
                raise
        else:
            await life.end_later(session, None)

    return generate


class _Manager:
    def __init__(self, life: _Life, parts: tuple[Any, ...]) -> None:
        self.life = life
        self.parts = parts
        self.session: Session | None = None

    def enter(self) -> Session:
        self.session = self.life.begin(self.parts)
        return self.session

    def exit(self, kind: object, error: BaseException | None, trace: object) -> bool:
        assert self.session is not None
        assert kind is (None if error is None else type(error))
        assert trace is (None if error is None else error.__traceback__)
        self.life.end(self.session, error)
        return self.life.swallows


class _SyncManager(_Manager):
    __enter__ = _Manager.enter
    __exit__ = _Manager.exit


class _AsyncManager(_Manager):
    async def __aenter__(self) -> Session:
        self.session = await self.life.begin_later(self.parts)
        return self.session

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        assert self.session is not None
        assert kind is (None if error is None else type(error))
        await self.life.end_later(self.session, error)
        return self.life.swallows


def _sync_manager(life: _Life) -> Factory:
    return lambda *parts: _SyncManager(life, parts)


def _async_manager(life: _Life) -> Factory:
    return lambda *parts: _AsyncManager(life, parts)


def _async_factory_of_sync(life: _Life) -> Factory:
    async def make(*parts: Any) -> _SyncManager:
        await asyncio.sleep(0)
        return _SyncManager(life, parts)

    return make


def _async_factory_of_async(life: _Life) -> Factory:
    async def make(*parts: Any) -> _AsyncManager:
        await asyncio.sleep(0)
        return _AsyncManager(life, parts)

    return make


async def _settled(value: Any) -> None:
    if inspect.isawaitable(value):
        await value
