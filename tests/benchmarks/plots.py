"""Plots of the result."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.axes import Axes

_OWN, _LIMIT, _NAIVE = "#2a6f97", "#b7c9d3", "#d98c5f"


def draw(result: dict[str, Any], directory: Path) -> Iterator[Path]:
    """Draw every plot into a directory, and yield their paths."""
    measures = {measure["name"]: measure for measure in result["measures"]}
    directory.mkdir(parents=True, exist_ok=True)
    for name, picture in {"drain": _drain, "pick-up": _pickup, "claim": _claim}.items():
        figure = Figure(figsize=(7, 3.4), layout="constrained")
        picture(figure.add_subplot(), measures)
        path = directory / f"bench-{name}.png"
        figure.savefig(path, dpi=90, metadata={"Software": None})
        yield path


def _drain(axes: Axes, measures: dict[str, Any]) -> None:
    names = [name for name in measures if name.startswith("drain")]
    labels = [
        name.removeprefix("drain, ").replace(" handlers", "").replace(", ", ",\n") for name in names
    ]
    labels = [
        label.replace("concurrency ", "at ").replace("two processes", "two\nprocesses")
        for label in labels
    ]
    _bars(axes, labels, [measures[name] for name in names])
    axes.set_ylabel("jobs per second")
    axes.set_title("No-op jobs drained, by kind of handler and concurrency")


def _pickup(axes: Axes, measures: dict[str, Any]) -> None:
    names = [name for name in measures if name.startswith("pick-up")]
    labels = [name.removeprefix("pick-up ").replace(" p", "\np") for name in names]
    _bars(axes, labels, [measures[name] for name in names])
    axes.set_ylabel("ms, insert to handler")
    axes.set_title("Pick-up by an idle instance")


def _claim(axes: Axes, measures: dict[str, Any]) -> None:
    sizes, own, limit = [], [], []
    for name, measure in measures.items():
        if found := re.fullmatch(r"claim of \d+, ([\d,]+) jobs stored", name):
            sizes.append(int(found[1].replace(",", "")))
            own.append(measure["monque"])
            limit.append(measure["limit"])
    axes.plot(sizes, own, marker="o", color=_OWN, label="monque")
    axes.plot(sizes, limit, marker="o", color=_LIMIT, label="limit")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("jobs stored")
    axes.set_ylabel("ms per claim of 100")
    axes.set_title("Claim cost as the collection grows")
    axes.legend(frameon=False)


def _bars(axes: Axes, labels: list[str], measures: list[dict[str, Any]]) -> None:
    kinds = [("monque", _OWN), ("limit", _LIMIT), ("naive", _NAIVE)]
    kinds = [(key, colour) for key, colour in kinds if measures[0][key] is not None]
    width = 0.8 / len(kinds)
    for number, (key, colour) in enumerate(kinds):
        places = [place + (number - (len(kinds) - 1) / 2) * width for place in range(len(labels))]
        axes.bar(places, [one[key] for one in measures], width, color=colour, label=key)
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
