"""Build the distributions and try them as a stranger gets them: `make dist-check`.

Each interpreter that is found gets an empty environment with the built files in it, first bare,
then with what the examples need. Give interpreters as arguments to choose them.
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

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "dist-check"
FILES = ROOT / "build" / "dist"
PACKAGES = ("monque-core", "monque-di")
EXTRAS = {"monque-core": "cli,demo,local,motor,testing", "monque-di": "beanie,mongoengine,motor"}
VERSIONS = ("3.11", "3.12", "3.13")
BESIDE_SOURCES = {".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
IMPORTS = "import monque_core, monque_di, monque_core.events, monque_core.reactive"


def run(*command: object, cwd: Path = ROOT) -> None:
    """Run a command that has to succeed, without what the shell has set for Python."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    }
    subprocess.run([str(part) for part in command], cwd=cwd, env=environment, check=True)


def build(package: str) -> tuple[Path, Path]:
    """Build a package; give its wheel and its sdist."""
    place = FILES / package
    shutil.rmtree(place, ignore_errors=True)
    run(sys.executable, "-m", "hatch", "--quiet", "build", place, cwd=ROOT / "packages" / package)
    (wheel,) = place.glob("*.whl")
    (sdist,) = place.glob("*.tar.gz")
    return wheel, sdist


def inspect(package: str, wheel: Path, sdist: Path) -> None:
    """Compare what was built with what is in git: nothing is missing, nothing is too much."""
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
    project = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]
    told = re.findall(r"\nClassifier: Programming Language :: Python :: (3\.\d+)(?=\n)", metadata)
    assert tuple(told) == VERSIONS, f"the classifiers tell of {told}"
    assert f"\nVersion: {project['version']}\n" in metadata
    print(f"{package} {project['version']}: {len(expected)} files in wheel and sdist", flush=True)


def interpreters() -> list[str]:
    """Give those of the versions we support that are on this machine."""
    found = []
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in VERSIONS:
        candidates = [f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
        for candidate in candidates:
            if _is(candidate, version):
                found.append(candidate)
                break
        else:
            print(f"Python {version} is not here", flush=True)
    return found


def _is(interpreter: str, version: str) -> bool:
    """Tell whether it is of a version, and can make environments."""
    ask = "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"
    try:
        told = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return told.stdout.strip() == version


def try_out(interpreter: str, wheels: dict[str, Path], sdists: dict[str, Path]) -> None:
    """Install into an empty environment, bare and then whole, and run the examples."""
    place = WORK / Path(interpreter).name if "/" not in interpreter else WORK / "python"
    shutil.rmtree(place, ignore_errors=True)
    run(interpreter, "-m", "venv", place)
    python = place / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", "--upgrade", "pip>=25.1")
    run(python, "--version")

    run(*pip, "install", *sdists.values())
    run(*pip, "check")
    run(python, "-W", "error", "-c", IMPORTS, cwd=WORK)

    run(*pip, "install", "--force-reinstall", "--no-deps", *wheels.values())
    run(
        *pip,
        "install",
        *(f"{wheels[name]}[{EXTRAS[name]}]" for name in PACKAGES),
        "--group",
        "test",
    )
    run(*pip, "check")
    run(place / "bin" / "monque", "--version", cwd=WORK)
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/examples/test_examples.py")


def main() -> None:
    """Build, look, and try with every interpreter there is."""
    built = {package: build(package) for package in PACKAGES}
    for package, files in built.items():
        inspect(package, *files)
    wheels = {package: wheel for package, (wheel, _) in built.items()}
    sdists = {package: sdist for package, (_, sdist) in built.items()}
    WORK.mkdir(parents=True, exist_ok=True)
    chosen = sys.argv[1:] or interpreters()
    assert chosen, "there is no interpreter to try"
    for interpreter in chosen:
        try_out(interpreter, wheels, sdists)
    print(f"tried with {len(chosen)} interpreters; the files are in {FILES.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
