"""Finding decorated classes in lists and packages."""

from __future__ import annotations

import importlib
import sys
from textwrap import dedent
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from dependency_injector import containers, providers

from monque_di import WiringError, job, job_controller, lifespan
from monque_di.discovery import Discovery
from monque_di.registry import Registry
from tests.support.applications import application, perform_in, queue_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job

    DB = AsyncDatabase[dict[str, Any]]

HEAD = "from monque_di import job, cron, job_controller\n"


class Package:
    """A package on disk, made for one test."""

    def __init__(self, root: Path) -> None:
        self.name = f"shop_{uuid4().hex}"
        self._path = root / self.name
        self.write("__init__.py", "")

    def write(self, path: str, code: str) -> None:
        """Write a module; packages on the way to it are made."""
        target = self._path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        for parent in target.parents:
            if parent == self._path:
                break
            (parent / "__init__.py").touch()
        target.write_text(HEAD + dedent(code).replace("SHOP", self.name))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """Return an empty importable package."""
    made = Package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == made.name]:
        del sys.modules[name]


def found(*packages: object) -> list[str]:
    discovery = Discovery(None, list(packages))
    assert discovery.problems == []
    return sorted(
        f"{target.__module__.partition('.')[2]}:{target.__name__}" for target in discovery.classes
    )


def job_code(name: str, class_name: str | None = None) -> str:
    return f"""
@job(name={name!r})
class {class_name or name.title()}:
    async def handle(self, job): ...
"""


@job(name="listed")
class Listed:
    async def handle(self, job: Job[None]) -> None: ...


class Undecorated(Listed): ...


def test_listed_classes_are_taken_in_order_and_once() -> None:
    @job(name="second")
    class Second(Listed): ...

    discovery = Discovery([Second, Listed, Second], ())
    assert discovery.classes == [Second, Listed]
    assert discovery.problems == []


def test_nothing_is_listed_by_none() -> None:
    discovery = Discovery(None, None)
    assert (discovery.classes, discovery.problems) == ([], [])


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        (Undecorated, "Undecorated is not decorated, only its base Listed is: decorate it too"),
        (dict, "dict has neither @job nor @job_controller"),
        (Listed(), "is not a class"),
        ("shop.jobs.Listed", "'shop.jobs.Listed' is not a class"),
        (None, "None is not a class"),
    ],
)
def test_what_is_listed_and_no_job_is_reported(listed: object, told: str) -> None:
    discovery = Discovery([listed, Listed], None)
    (problem,) = discovery.problems
    assert problem.startswith("jobs → ")
    assert told in problem
    assert discovery.classes == [Listed]


@pytest.mark.parametrize("values", ["shop.jobs", 5, Listed, {"shop": 1}])
def test_a_list_is_expected(values: object) -> None:
    discovery = Discovery(values, values)
    assert [problem.partition(" not ")[0] for problem in discovery.problems] == [
        "jobs → expected a list,",
        "packages → expected a list,",
    ]


def test_a_package_is_searched_to_the_bottom(package: Package) -> None:
    package.write("__init__.py", job_code("top"))
    package.write("mail.py", job_code("mail") + job_code("spam"))
    package.write("deep/__init__.py", job_code("deep"))
    package.write("deep/deeper/deepest.py", job_code("bottom"))
    package.write("empty.py", "value = 5")
    expected = [
        ":Top",
        "deep.deeper.deepest:Bottom",
        "deep:Deep",
        "mail:Mail",
        "mail:Spam",
    ]
    assert found(package.name) == expected
    assert found(importlib.import_module(package.name)) == expected
    assert found(package.name, f"{package.name}.mail") == expected


def test_a_single_module_will_do(package: Package) -> None:
    package.write("mail.py", job_code("mail"))
    package.write("other.py", job_code("other"))
    assert found(f"{package.name}.mail") == ["mail:Mail"]


def test_a_directory_without_an_init_is_none_of_the_package(
    package: Package, tmp_path: Path
) -> None:
    package.write("mail.py", job_code("mail"))
    package.write("templates/job.py", "raise ValueError('a template')")
    (tmp_path / package.name / "templates" / "__init__.py").unlink()
    assert found(package.name) == ["mail:Mail"]


def test_only_classes_that_a_module_defines_and_decorates_are_its_own(package: Package) -> None:
    package.write("base.py", job_code("base") + "class Undecorated(Base): ...")
    package.write(
        "__init__.py",
        """
        from SHOP.base import Base, Undecorated
        from tests.di.test_discovery import Listed
        Again = Base
        """,
    )
    assert found(package.name) == ["base:Base"]


def test_a_decorated_base_is_not_registered_by_its_subclass(package: Package) -> None:
    package.write(
        "family.py",
        """
        from tests.di.test_discovery import Listed

        @job(name="louder")
        class Louder(Listed): ...

        @job_controller("family")
        class Family:
            @job(name="run")
            async def run(self, job): ...

        class Branch(Family): ...
        """,
    )
    assert found(package.name) == ["family:Family", "family:Louder"]


def test_a_class_that_is_listed_and_found_is_one(package: Package) -> None:
    package.write("mail.py", job_code("mail"))
    mail = importlib.import_module(f"{package.name}.mail")
    discovery = Discovery([mail.Mail], [package.name, package.name])
    assert discovery.classes == [mail.Mail]


def test_a_main_module_is_not_run(package: Package) -> None:
    package.write("__main__.py", "raise SystemExit('it ran')")
    package.write("deep/__main__.py", "raise SystemExit('it ran')")
    package.write("mail.py", job_code("mail"))
    assert found(package.name) == ["mail:Mail"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            "import nothing_of_the_sort",
            "ModuleNotFoundError: No module named 'nothing_of_the_sort'",
        ),
        ("raise ValueError('in the module')", "ValueError: in the module"),
        ("def broken(:", "SyntaxError: "),
        ("import sys; sys.exit('a script')", "SystemExit: a script"),
    ],
)
@pytest.mark.parametrize("path", ["broken.py", "broken/__init__.py"])
def test_a_module_that_cannot_be_imported_is_reported_and_the_others_are_found(
    package: Package, path: str, code: str, told: str
) -> None:
    package.write(path, code)
    package.write("after.py", job_code("after"))
    package.write("worse.py", "raise RuntimeError('worse')")
    discovery = Discovery([Listed], [package.name])
    one, two = sorted(discovery.problems)
    assert one.startswith(f"packages → {package.name}.broken cannot be imported: {told}")
    assert two == f"packages → {package.name}.worse cannot be imported: RuntimeError: worse"
    assert [target.__name__ for target in discovery.classes] == ["Listed", "After"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("no_such_package", "no_such_package cannot be imported: ModuleNotFoundError: "),
        ("no.such.package", "no.such.package cannot be imported: ModuleNotFoundError: "),
        (".relative", ".relative cannot be imported: TypeError: "),
        ("", " cannot be imported: ValueError: "),
        (5, "5 is neither a package nor a package name"),
        (None, "None is neither a package nor a package name"),
        (Listed, "is neither a package nor a package name"),
    ],
)
def test_a_package_that_is_none_is_reported(name: object, told: str) -> None:
    (problem,) = Discovery(None, [name]).problems
    assert problem.startswith("packages → ")
    assert told in problem


def test_duplicates_over_modules_are_reported_with_both_places(package: Package) -> None:
    package.write("mail.py", job_code("send"))
    package.write("sms.py", job_code("send"))
    (problem,) = Registry(Discovery(None, [package.name]).classes).problems
    assert problem == (
        f"'send' → 2 jobs have this name: {package.name}.mail.Send.handle, "
        f"{package.name}.sms.Send.handle"
    )


async def test_the_jobs_of_a_package_run(db: DB, package: Package) -> None:
    package.write(
        "mail.py",
        """
        ran = []

        @job(name="mail")
        class Mail:
            async def handle(self, job):
                ran.append(job.data)

        @job_controller("family")
        class Family:
            @job(name="run")
            def run(self, job):
                ran.append(job.data)
        """,
    )
    app = application(db)
    app.monque.packages.override([package.name])
    async with lifespan(app):
        mail = sys.modules[f"{package.name}.mail"]
        await perform_in(app, mail.Mail, mail.Family.run, data="post")
    assert mail.ran == ["post", "post"]


async def test_packages_go_into_the_container(db: DB, package: Package) -> None:
    package.write("broken.py", "raise ValueError('in the module')")
    app = application(db, second=queue_on(db, packages=[package.name]))
    with pytest.raises(WiringError, match=r"broken cannot be imported: ValueError: in the module"):
        async with lifespan(app):
            pass


@pytest.mark.parametrize("kind", [list, tuple, set])
async def test_modules_go_into_a_nested_container(
    db: DB, package: Package, kind: type[list[Any]]
) -> None:
    package.write("mail.py", job_code("mail"))
    module = importlib.import_module(package.name)

    class Inner(containers.DeclarativeContainer):
        queue = queue_on(db, packages=kind([module]))

    class Outer(containers.DeclarativeContainer):
        inner = providers.Container(Inner)

    apps: list[Any] = [Outer(), Outer()]
    for app in apps:
        async with lifespan(app):
            assert {worker.name for worker in app.inner.queue.service().monque._workers} == {"mail"}


async def test_a_module_without_a_list_is_reported_at_the_start(db: DB, package: Package) -> None:
    app = application(db, second=queue_on(db, packages=importlib.import_module(package.name)))
    with pytest.raises(WiringError, match="packages → expected a list"):
        async with lifespan(app):
            pass


@job_controller("unfinished")
class Unfinished:
    async def handle(self, job: Job[None]) -> None: ...


async def test_an_empty_controller_is_reported_at_the_start(db: DB) -> None:
    with pytest.raises(WiringError, match=r"Unfinished → no handler"):
        async with lifespan(application(db, Unfinished)):
            pass
