"""The reference pages document everything that exists, and nothing else."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId, json_util
from typer.testing import CliRunner

import monque_core
import monque_di
from monque_core import (
    Cron,
    Exponential,
    Fixed,
    Job,
    JobStatus,
    Linear,
    Monque,
    MonqueOptions,
    ReactiveOptions,
    ReactiveTask,
    Retry,
    Series,
    SyncMonque,
    SyncReactiveTask,
    errors,
    events,
    reactive,
)
from monque_core.cli.app import app
from monque_core.emitter import IsolatingEmitter
from monque_core.jobs.fields import FIELDS, check_max_retries
from monque_core.options import Options
from monque_core.store.documents import to_document, to_job
from monque_core.store.indexes import job_indexes, meta_indexes
from monque_core.store.tasks.documents import to_record
from monque_core.store.tasks.indexes import task_indexes
from monque_core.tasks.definition import TASK_DEFAULTS, TaskOptions
from monque_di import MonqueContainer, MonqueService
from tests.support.pages import ROOT, Block, blocks, page_paths, page_text

if TYPE_CHECKING:
    from collections.abc import Iterator

_DI = "docs/di/reference.md"
_FROM_PYEE = {"on", "once", "off"}
_RANDOM_OR_LIVE = {"scheduler_instance_id", "clock"}
_FOR_THE_ENGINE = {"is_in_transaction"}


@cache
def _syntax(program: Block) -> list[ast.AST]:
    return list(ast.walk(ast.parse(program.code)))


def _nodes(importing: str = "") -> Iterator[ast.AST]:
    """Return the syntax trees of all programs, or of those that import a name."""
    for program in blocks("python", "python service"):
        nodes = _syntax(program)
        imported = {node.name for node in nodes if isinstance(node, ast.alias)}
        if not importing or importing in imported:
            yield from nodes


def _imported_by_programs(package: str) -> set[str]:
    return {
        alias.name
        for node in _nodes()
        if isinstance(node, ast.ImportFrom) and node.module == package
        for alias in node.names
    }


def _used_by_programs(variable: str, importing: str = "") -> set[str]:
    """Return the attributes that programs use on objects of this name."""
    return {
        node.attr
        for node in _nodes(importing)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == variable
    }


def _public_members(of: type) -> set[str]:
    defined = {
        name
        for kind in of.__mro__
        if kind.__module__.startswith("monque_core.") and kind is not IsolatingEmitter
        for name in vars(kind)
        if not name.startswith("_")
    }
    return defined | _FROM_PYEE


def _members_of_the_service() -> list[str]:
    return sorted(name for name in vars(MonqueService) if not name.startswith("_"))


def _rows(text: str) -> list[str]:
    """Return the names at the start of the rows of tables."""
    return re.findall(r"^\| `(\w+)`", text, re.MULTILINE)


def _first_column(page: str) -> set[str]:
    """Return what is in code type in the first column of the page's tables."""
    cells = re.findall(r"^\| ([^|]*)", page_text(page), flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def _is_error(name: str) -> bool:
    value = getattr(monque_core, name)
    return isinstance(value, type) and issubclass(value, Exception)


@pytest.mark.parametrize(
    "name", sorted(name for name in monque_core.__all__ if not _is_error(name))
)
def test_every_public_name_is_used_in_a_program(name: str) -> None:
    assert name in _imported_by_programs("monque_core")


@pytest.mark.parametrize("name", sorted(_public_members(Monque)))
def test_every_public_member_of_monque_is_used_in_a_program(name: str) -> None:
    assert name in _used_by_programs("monque", "Monque")


@pytest.mark.parametrize("name", sorted(_public_members(SyncMonque)))
def test_every_public_member_of_sync_monque_is_used_in_a_program(name: str) -> None:
    assert name in _used_by_programs("monque", "SyncMonque")


@pytest.mark.parametrize("name", sorted(monque_core.__all__))
def test_every_public_name_is_in_the_reference(name: str) -> None:
    page = "docs/reference/errors.md" if _is_error(name) else "docs/reference/api.md"

    assert f"`{name}" in page_text(page)


_REACTIVE_NAMES = "Names of `monque_core.reactive`"


@pytest.mark.parametrize("name", sorted(reactive.__all__))
def test_every_public_name_of_reactive_tasks_is_in_the_reference(name: str) -> None:
    assert f"`{name}`" in _section("docs/reference/api.md", _REACTIVE_NAMES)


@pytest.mark.parametrize("name", sorted(reactive.__all__))
def test_every_public_name_of_reactive_tasks_is_used_in_a_program(name: str) -> None:
    imported = _imported_by_programs("monque_core.reactive") | _imported_by_programs("monque_core")

    assert name in imported


_SEEN = [
    kind for name in reactive.__all__ if dataclasses.is_dataclass(kind := getattr(reactive, name))
]
_RETRIES = [Retry, Exponential, Linear, Fixed, Series, Cron]


@pytest.mark.parametrize("kind", [*_SEEN, *_RETRIES])
def test_the_reference_lists_every_attribute_of_reactive_task_objects(kind: type) -> None:
    text = _section("docs/reference/api.md", _REACTIVE_NAMES)
    text += _section("docs/reactive.md", "Failure and retry")
    told = re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text)))
    properties = {name for name, value in vars(kind).items() if isinstance(value, property)}

    assert {field.name for field in dataclasses.fields(kind)} | properties <= set(told)


def test_the_reactive_page_lists_every_option_its_default_and_no_other() -> None:
    of_worker = inspect.signature(Monque.reactive).parameters
    options = {
        **dict.fromkeys(TaskOptions.__annotations__, inspect.Parameter.empty),
        **TASK_DEFAULTS,
        **{name: of_worker[name].default for name in ("concurrency", "timeout")},
    }
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]+) \|", _section("docs/reactive.md", "Options"), re.MULTILINE
    )

    assert dict(rows) == {
        name: "required" if default is inspect.Parameter.empty else _in_words(default)
        for name, default in options.items()
    }


@pytest.mark.parametrize("kind", [ReactiveTask, SyncReactiveTask])
def test_the_reactive_page_lists_every_member_of_a_run(kind: type) -> None:
    members = {
        name for base in kind.__mro__[:-1] for name in vars(base) if not name.startswith("_")
    } - _FOR_THE_ENGINE
    told = re.findall(r"`(?:await )?task\.(\w+)", _section("docs/reactive.md", "The handler"))

    assert set(told) == members


@pytest.mark.parametrize("name", sorted(monque_di.__all__))
def test_every_public_name_of_monque_di_is_in_its_reference(name: str) -> None:
    assert f"`{name}`" in page_text(_DI)


@pytest.mark.parametrize("name", sorted(monque_di.__all__))
def test_every_public_name_of_monque_di_is_used_in_a_program(name: str) -> None:
    assert name in _imported_by_programs("monque_di")


@pytest.mark.parametrize("decorator", [monque_di.job, monque_di.cron])
def test_the_reference_of_monque_di_lists_every_argument_and_no_other(decorator: Any) -> None:
    section = _section(_DI, f"`{decorator.__name__}`")

    assert _rows(section) == list(inspect.signature(decorator).parameters)


def test_the_reference_of_monque_di_has_the_signature_of_a_controller() -> None:
    signature = inspect.signature(monque_di.job_controller)
    untyped = signature.replace(
        parameters=[
            parameter.replace(annotation=inspect.Parameter.empty)
            for parameter in signature.parameters.values()
        ],
        return_annotation=inspect.Signature.empty,
    )

    assert f"`@job_controller{untyped}`" in page_text(_DI)


def test_the_reference_of_monque_di_lists_what_its_container_takes_and_provides() -> None:
    section, _, options = _section(_DI, "`MonqueContainer`").partition("### Options")

    assert _rows(section) == ["connection", "options", "jobs", "packages", "service", "monque"]
    assert set(_rows(section)) <= set(MonqueContainer.providers)
    assert _rows(options) == ["enabled", "process_jobs"]


def test_the_reference_of_monque_di_lists_every_member_of_its_service_and_no_other() -> None:
    section = _section(_DI, "`MonqueService`")
    listed = [
        name
        for cell in re.findall(r"^\| (`[^|]*)", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", cell)
    ]

    assert sorted(listed) == _members_of_the_service()


@pytest.mark.parametrize("name", _members_of_the_service())
def test_every_member_of_the_service_is_used_in_a_program(name: str) -> None:
    assert name in _used_by_programs("service")


def test_the_errors_page_lists_every_error_and_no_other() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}

    assert _first_column("docs/reference/errors.md") == defined


def test_the_options_page_lists_every_option_and_no_other() -> None:
    assert set(_rows(_section("docs/reference/options.md", "Options"))) == set(
        MonqueOptions.__annotations__
    )


@pytest.mark.parametrize(
    "option", [field for field in dataclasses.fields(Options) if field.name not in _RANDOM_OR_LIVE]
)
def test_the_options_page_states_each_default(option: dataclasses.Field[Any]) -> None:
    row = re.search(
        rf"^\| `{option.name}` \| ([^|]+) \|", page_text("docs/reference/options.md"), re.MULTILINE
    )

    assert row is not None
    assert row[1].strip() == _in_words(_default(option))


def test_the_options_page_lists_every_reactive_option_its_default_and_no_other() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]+) \|",
        _section("docs/reference/options.md", "Reactive options"),
        re.MULTILINE,
    )

    assert dict(rows) == {
        option.name: _in_words(_default(option)) for option in dataclasses.fields(ReactiveOptions)
    }


def _default(option: dataclasses.Field[Any]) -> object:
    if option.default is not dataclasses.MISSING:
        return option.default
    assert option.default_factory is not dataclasses.MISSING
    return option.default_factory()


def _in_words(default: object) -> str:
    if dataclasses.is_dataclass(default):
        return f"`{type(default).__name__}()`"
    if not isinstance(default, timedelta):
        return f'`"{default}"`' if isinstance(default, str) else f"`{default}`"
    seconds = default.total_seconds()
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _section(page: str, heading: str) -> str:
    text = page_text(page)
    begin = re.search(rf"^##+ {re.escape(heading)}$", text, re.MULTILINE)
    assert begin is not None, f"{page} has no section {heading}"
    end = re.compile(r"^## ", re.MULTILINE).search(text, begin.end())
    return text[begin.start() : end.start() if end else len(text)]


def test_the_events_page_lists_every_event_and_no_other() -> None:
    names = {
        value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)
    }

    assert _first_column("docs/reference/events.md") == names


@pytest.mark.parametrize(
    "payload", [value for value in vars(events).values() if dataclasses.is_dataclass(value)]
)
def test_the_events_page_documents_every_payload(payload: Any) -> None:
    fields = ", ".join(field.name for field in dataclasses.fields(payload))

    assert f"`{payload.__name__}({fields})`" in page_text("docs/reference/events.md")


def test_the_document_page_lists_every_field_with_its_type_and_meaning() -> None:
    section = _section("docs/reference/document-format.md", "Fields")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]* \| ([^|]*)\|$", section, re.MULTILINE)

    assert [(key, type_) for key, type_, _ in rows] == [(field.key, field.type) for field in FIELDS]
    for (_, _, meaning), field in zip(rows, FIELDS, strict=True):
        assert meaning.startswith(field.meaning)


def test_a_document_has_the_listed_fields_and_no_other() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    fullest = Job[None](
        id=ObjectId(),
        name="name",
        data=None,
        status=JobStatus.PENDING,
        next_run_at=now,
        created_at=now,
        updated_at=now,
        fail_count=1,
        fail_reason="reason",
        locked_at=now,
        claimed_by="instance",
        last_heartbeat=now,
        heartbeat_interval=1,
        repeat_interval="* * * * *",
        timezone="UTC",
        unique_key="key",
        claim_token=ObjectId(),
        claimed_at=now,
        claims=1,
        priority=1,
        max_retries=1,
        timeout=timedelta(seconds=1),
    )

    assert set(_rows(_section("docs/reference/document-format.md", "Fields"))) == set(
        to_document(fullest)
    )


@pytest.mark.parametrize("example", blocks("json"), ids=str)
def test_every_example_of_a_document_is_a_job(example: Block) -> None:
    document = json_util.loads(example.code)

    assert to_document(to_job(document)) == document


@pytest.mark.parametrize("example", blocks("json record"), ids=str)
def test_every_example_of_a_record_is_one(example: Block) -> None:
    document = json_util.loads(example.code)
    known = set(_rows(_section("docs/reference/document-format.md", "Records of reactive tasks")))

    assert to_record(document).source_id == document["sourceDocId"]
    assert set(document) <= known


def test_the_page_on_indexes_lists_every_index_and_no_other() -> None:
    indexes = (*job_indexes(retention=True), *meta_indexes(), *task_indexes())
    names = {index.document["name"] for index in indexes}

    assert set(re.findall(r"`(monque_py_\w+)`", page_text("docs/reference/indexes.md"))) == names


def test_the_reactive_page_lists_every_index_of_records_and_no_other() -> None:
    section = _section("docs/reactive.md", "Storage")

    assert _rows(section) == [index.document["name"] for index in task_indexes()]


_OTHER_PAGES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "examples/README.md",
    "packages/monque-core/README.md",
    "packages/monque-di/README.md",
)


def _links() -> list[tuple[str, str]]:
    return [
        (path.relative_to(ROOT).as_posix(), target)
        for path in (*page_paths(), *(ROOT / page for page in _OTHER_PAGES))
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
        if "://" not in target
    ]


def _leads_somewhere(page: str, target: str) -> bool:
    path, _, anchor = target.partition("#")
    linked = (ROOT / page).parent / path if path else ROOT / page
    if not linked.exists() or not anchor:
        return linked.exists()
    headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return anchor in anchors


@pytest.mark.parametrize("page", sorted({page for page, _ in _links()}))
def test_every_link_leads_somewhere(page: str) -> None:
    targets = [target for of, target in _links() if of == page]
    assert [target for target in targets if not _leads_somewhere(page, target)] == []


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {target for page, target in _links() if page == "README.md"}

    assert {path.relative_to(ROOT).as_posix() for path in page_paths()} - {"README.md"} <= linked


def test_max_retries_is_everywhere_the_number_of_runs_in_all() -> None:
    explained = {
        page: [
            line
            for line in page_text(page).splitlines()
            if re.match(r"\|.*`(max_retries|maxRetries|--max-retries N)\b.*\|", line)
        ]
        for page in (path.relative_to(ROOT).as_posix() for path in page_paths())
    }
    rows = [row for found in explained.values() for row in found]
    assert len(rows) >= 7
    assert [row for row in rows if not re.search(r"\b[Rr]uns in all\b", row)] == []
    assert "`max_retries` is the total number of runs" in page_text("docs/concepts.md")

    assert "number of runs in all" in " ".join((inspect.getdoc(Monque.enqueue) or "").split())
    told = CliRunner().invoke(app, ["enqueue", "--help"]).output
    assert re.search(r"--max-retries .*Maximum number of runs", told)
    for refuse in (lambda: Options.parse({"max_retries": 0}), lambda: check_max_retries(0)):
        with pytest.raises(ValueError, match="the number of runs in all"):
            refuse()
