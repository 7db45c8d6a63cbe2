"""Registration of handlers, for `Monque` and `SyncMonque`."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar, Unpack, overload

from monque_core.display import brief_repr
from monque_core.errors import InvalidJobError
from monque_core.jobs.fields import check_timeout
from monque_core.scheduler.workers import Worker, check_handler, is_async, needs_arguments
from monque_core.validation import check_name, check_whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from monque_core.durations import Duration
    from monque_core.options import Options
    from monque_core.scheduler.workers import Handler, Middleware
    from monque_core.store.store import Store
    from monque_core.tasks.definition import Definition, TaskOptions

H = TypeVar("H", bound="Handler")
M = TypeVar("M", bound="Middleware")


class Registration(ABC):
    """The part of `Monque` and `SyncMonque` that registers handlers and middleware."""

    _options: Options
    _store: Store
    _middleware: list[Middleware]

    @abstractmethod
    def _add_worker(self, worker: Worker, *, replace: bool) -> None:
        """Register a worker, and wake the instance if it is running."""

    @abstractmethod
    def _add_task(self, definition: Definition, worker: Worker) -> None:
        """Register the worker of a reactive task, and plan for it if the instance is running."""

    @overload
    def worker(
        self,
        name: str,
        handler: None = None,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        replace: bool = False,
    ) -> Callable[[H], H]: ...

    @overload
    def worker(
        self,
        name: str,
        handler: H,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        replace: bool = False,
    ) -> H: ...

    def worker(
        self,
        name: str,
        handler: H | None = None,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        replace: bool = False,
    ) -> H | Callable[[H], H]:
        """Register the handler of a job name, as a decorator or directly.

        An `async def` handler runs on the event loop, a `def` handler in a thread. The timeout
        bounds each run whose job has no timeout.
        """
        if callable(name):
            raise needs_arguments("worker", name, '"send-email"')
        check_name(name)
        make_worker = self._worker_factory(name, concurrency, timeout)

        def register(function: H) -> H:
            self._add_worker(make_worker(function), replace=replace)
            return function

        return register if handler is None else register(handler)

    @overload
    def reactive(
        self,
        collection: object,
        handler: None = None,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TaskOptions],
    ) -> Callable[[H], H]: ...

    @overload
    def reactive(
        self,
        collection: object,
        handler: H,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TaskOptions],
    ) -> H: ...

    def reactive(
        self,
        collection: object,
        handler: H | None = None,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TaskOptions],
    ) -> H | Callable[[H], H]:
        """Run a handler when documents of a collection change, as a decorator or directly.

        The collection is a name, or a PyMongo or Motor collection of the same deployment. The
        options are those of `TaskOptions`. An `async def` handler gets a `ReactiveTask`. A `def`
        handler runs in a thread and gets a `SyncReactiveTask`.
        """
        if inspect.isroutine(collection) or isinstance(collection, type):
            raise needs_arguments("reactive", collection, '"orders", name="invoice"')
        from monque_core.tasks.definition import check_options, define  # noqa: PLC0415  # slow

        check_options(options)
        place = self._store.tasks.place_of(collection)
        definition = define(*place, codec=self._store.codec, **options)
        make_worker = self._worker_factory(definition.name, concurrency, timeout)

        def register(function: H) -> H:
            self._add_task(definition, make_worker(function))
            return function

        return register if handler is None else register(handler)

    def use(self, middleware: M) -> M:
        """Wrap every run in an async function, inside the middleware added before.

        It is called as `await middleware(job, call_next)`; `await call_next()` goes on, and
        `await call_next(other)` goes on with another `Job` in its place.
        """
        if not is_async(middleware):
            raise TypeError(
                "middleware must be an async function of (job, call_next), "
                f"not {brief_repr(middleware)}"
            )
        self._middleware.append(middleware)
        return middleware

    def _worker_factory(
        self, name: str, concurrency: int | None, timeout: Duration | None
    ) -> Callable[[Handler], Worker]:
        slots = self._options.worker_concurrency
        if concurrency is not None:
            slots = check_whole_number("concurrency", concurrency, least=1, error=InvalidJobError)
        limit = check_timeout(timeout)

        def make_worker(handler: Handler) -> Worker:
            return Worker(name, check_handler(name, handler), slots, limit, is_async(handler))

        return make_worker
