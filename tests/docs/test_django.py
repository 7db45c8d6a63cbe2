"""The files on the Django page make a working application."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import JobStatus
from tests.support.pages import blocks
from tests.support.stored import stored_jobs
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo.asynchronous.database import AsyncDatabase

_PAGE = "docs/howto/django.md"
_LONGEST = 200
_SIGN_UP = """
from django.test import Client
for _ in range(2):
    answer = Client().post("/customers/ada@example.com")
    print(answer.status_code, answer.json())
"""
_IS_WELCOMED = """
from shop.models import Customer
print(Customer.objects.get(address="ada@example.com").welcomed)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a new `django-admin` project with the files of the page in its application."""
    for command in (["startproject", "project", "."], ["startapp", "shop"]):
        subprocess.run([sys.executable, "-m", "django", *command], cwd=tmp_path, check=True)
    commands = tmp_path / "shop" / "management" / "commands"
    commands.mkdir(parents=True)
    for place in (commands, commands.parent):
        (place / "__init__.py").touch()
    for block in blocks("python file"):
        assert block.page == _PAGE
        path = block.code.splitlines()[0].removeprefix("# ").partition(",")[0]
        (tmp_path / path).write_text(block.code, encoding="utf-8")
    with (tmp_path / "project" / "settings.py").open("a", encoding="utf-8") as settings:
        settings.write("\nINSTALLED_APPS += ['shop']\nALLOWED_HOSTS = ['testserver']\n")
        settings.write("MIDDLEWARE = [each for each in MIDDLEWARE if 'csrf' not in each]\n")
    (tmp_path / "project" / "urls.py").write_text(
        "from django.urls import include, path\n\nurlpatterns = [path('', include('shop.urls'))]\n",
        encoding="utf-8",
    )
    return tmp_path


async def test_a_view_enqueues_and_the_command_works(
    project: Path, db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    environment = os.environ | {"MONGODB_URI": uri.replace("/?", f"/{db.name}?")}

    async def manage(*arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-u", "manage.py", *arguments),
            cwd=project,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(process.communicate(), _LONGEST)
        assert process.returncode == 0, out.decode()
        return out.decode()

    await manage("makemigrations", "shop")
    await manage("migrate")
    signed_up = await manage("shell", "-v", "0", "-c", _SIGN_UP)
    assert signed_up == "202 {'address': 'ada@example.com'}\n" * 2
    (job,) = await stored_jobs(db)
    assert (job.name, job.data) == ("welcome", {"to": "ada@example.com"})

    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "manage.py", "work"),
        cwd=project,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )

    async def has_run() -> bool:
        return bool(await stored_jobs(db, status=JobStatus.COMPLETED))

    try:
        await eventually(has_run)
    finally:
        worker.terminate()
        told, _ = await worker.communicate()
    assert (worker.returncode, told.decode()) == (0, "welcome ada@example.com\n")
    assert await manage("shell", "-v", "0", "-c", _IS_WELCOMED) == "True\n"
