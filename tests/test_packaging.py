"""The metadata of the distributions; `make dist-check` builds and installs them."""

from __future__ import annotations

import importlib
import importlib.metadata
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.support.pages import ROOT

PACKAGES = ("monque-core", "monque-di")


def _manifest(package: str) -> dict[str, Any]:
    path = ROOT / "packages" / package / "pyproject.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def test_both_packages_have_one_version_that_each_declares_once() -> None:
    core, di = (_manifest(package)["project"] for package in PACKAGES)
    (needed,) = [
        requirement
        for requirement in map(Requirement, di["dependencies"])
        if requirement.name == "monque-core"
    ]

    assert core["version"] == di["version"]
    assert needed.specifier.contains(core["version"])
    for package in PACKAGES:
        sources = (ROOT / "packages" / package / "src").rglob("*.py")
        quoted = f'"{core["version"]}"'
        assert not any(quoted in path.read_text(encoding="utf-8") for path in sources)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_distribution_has_types_a_license_and_a_readme(package: str) -> None:
    folder = ROOT / "packages" / package
    project = _manifest(package)["project"]

    assert (folder / "src" / package.replace("-", "_") / "py.typed").exists()
    assert "Typing :: Typed" in project["classifiers"]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert "](../" not in (folder / "README.md").read_text(encoding="utf-8")
    for extra in project["optional-dependencies"]:
        assert f"`{package}[{extra}]`" in (folder / "README.md").read_text(encoding="utf-8")


def test_both_packages_support_the_same_python_versions() -> None:
    core, di = (_manifest(package)["project"] for package in PACKAGES)

    assert core["requires-python"] == di["requires-python"]
    assert core["classifiers"] == di["classifiers"]


def test_the_command_prints_the_installed_version() -> None:
    version = _manifest("monque-core")["project"]["version"]

    assert importlib.metadata.version("monque-core") == version


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_knows_its_version(package: str) -> None:
    module = importlib.import_module(package.replace("-", "_"))

    assert module.__version__ == _manifest(package)["project"]["version"]
    assert not hasattr(module, "__versoin__")
