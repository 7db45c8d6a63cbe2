"""Build the distributions and test them in empty environments: `make dist-check`.

For each supported Python version: install the sdists without extras, then the sdists and the wheels
with all extras, and run the examples. A missing interpreter fails the check after the others have
run. Pass interpreters as arguments to choose them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "dist-check"
FILES = ROOT / "build" / "dist"
PACKAGES = ("monque-core", "monque-di")
VERSIONS = ("3.11", "3.12", "3.13")
BESIDE_SOURCES = {".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
EXAMPLES = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/examples/test_examples.py")
IMPORTS = "import monque_core, monque_di, monque_core.events, monque_core.reactive"


def run(*command: object, cwd: Path = ROOT) -> None:
    """Run a command that must succeed, without the Python variables of the shell."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    }
    subprocess.run([str(part) for part in command], cwd=cwd, env=environment, check=True)


def project(package: str) -> dict[str, Any]:
    """Return the `project` table of a package."""
    manifest = (ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(manifest)["project"]
    return table


def build(package: str) -> tuple[Path, Path]:
    """Build a package; return its wheel and its sdist."""
    place = FILES / package
    shutil.rmtree(place, ignore_errors=True)
    run(sys.executable, "-m", "hatch", "--quiet", "build", place, cwd=ROOT / "packages" / package)
    (wheel,) = place.glob("*.whl")
    (sdist,) = place.glob("*.tar.gz")
    return wheel, sdist


def inspect(package: str, wheel: Path, sdist: Path) -> None:
    """Check that wheel and sdist contain exactly the files in git."""
    source = f"packages/{package}/src/"
    listed = subprocess.check_output(["git", "ls-files", source], cwd=ROOT, text=True)
    expected = {path.removeprefix(source) for path in listed.split()}
    module = package.replace("-", "_")
    assert f"{module}/py.typed" in expected
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = archive.read(f"{wheel.name.split('-py3')[0]}.dist-info/METADATA").decode()
    assert names == expected, f"the wheel differs: {names ^ expected}"
    with tarfile.open(sdist) as archive:
        names = {
            member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()
        }
    sources = {name.removeprefix("src/") for name in names - BESIDE_SOURCES}
    assert sources == expected, f"the sdist differs: {sources ^ expected}"
    version = project(package)["version"]
    versions = re.findall(
        r"\nClassifier: Programming Language :: Python :: (3\.\d+)(?=\n)", metadata
    )
    assert tuple(versions) == VERSIONS, f"the classifiers list {versions}"
    assert f"\nVersion: {version}\n" in metadata
    print(f"{package} {version}: {len(expected)} files in wheel and sdist", flush=True)


def interpreters() -> dict[str, str | None]:
    """Return an interpreter for each supported version, None if this machine has none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: dict[str, str | None] = {}
    for version in VERSIONS:
        candidates = [f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
        found[version] = next((each for each in candidates if _is(each, version)), None)
    return found


def _is(interpreter: str, version: str) -> bool:
    """Whether an interpreter has this version and can create environments."""
    code = "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"
    try:
        printed = subprocess.run(
            [interpreter, "-c", code], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return printed.stdout.strip() == version


def try_out(interpreter: str, wheels: dict[str, Path], sdists: dict[str, Path]) -> None:
    """Install without and with extras into an empty environment, and run the examples."""
    place = WORK / "python"
    shutil.rmtree(place, ignore_errors=True)
    run(interpreter, "-m", "venv", place)
    python = place / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", "--upgrade", "pip>=25.1")
    run(python, "--version")

    run(*pip, "install", *sdists.values())
    run(*pip, "check")
    run(python, "-W", "error", "-c", IMPORTS, cwd=WORK)

    extras = {name: ",".join(project(name)["optional-dependencies"]) for name in PACKAGES}
    whole = (f"{sdists[name]}[{extras[name]}]" for name in PACKAGES)
    run(*pip, "install", *whole, "--group", "test")
    run(*pip, "check")
    run(place / "bin" / "monque", "--version", cwd=WORK)
    run(python, *EXAMPLES)

    run(*pip, "install", "--force-reinstall", "--no-deps", *wheels.values())
    run(place / "bin" / "monque", "--version", cwd=WORK)
    run(python, *EXAMPLES)


def main() -> None:
    """Build, inspect, and test with every supported Python."""
    built = {package: build(package) for package in PACKAGES}
    for package, files in built.items():
        inspect(package, *files)
    wheels = {package: wheel for package, (wheel, _) in built.items()}
    sdists = {package: sdist for package, (_, sdist) in built.items()}
    WORK.mkdir(parents=True, exist_ok=True)
    chosen = {name: name for name in sys.argv[1:]} or interpreters()
    for interpreter in filter(None, chosen.values()):
        try_out(interpreter, wheels, sdists)
    missing = [version for version, interpreter in chosen.items() if interpreter is None]
    print(f"tested with {', '.join(sorted(chosen.keys() - missing)) or 'none'}")
    print(f"the files are in {FILES.relative_to(ROOT)}")
    if missing:
        sys.exit(f"not tested, interpreter not found: Python {', '.join(missing)}")


if __name__ == "__main__":
    main()
