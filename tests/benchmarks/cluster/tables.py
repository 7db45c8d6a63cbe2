"""The Markdown tables of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_PICKUP = (("p50", "pickup_p50_ms", "{:.1f} ms"), ("p99", "pickup_p99_ms", "{:.1f} ms"))
_LONE = (
    ("find-and-modify", "find_and_modify", "{:.2f}"),
    ("commands¹", "commands", "{:.2f}"),
    ("updates", "updates", "{:.2f}"),
    ("getMores", "get_mores", "{:.2f}"),
    ("keys examined", "keys_examined", "{:.1f}"),
    ("server CPU", "server_cpu_ms", "{:.2f} ms"),
    *_PICKUP,
)
_COLUMNS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "lone": (("instances", "instances", "{}"), *_LONE),
    "reactive": (("instances", "instances", "{}"), *_LONE),
    "idle": (
        ("instances", "instances", "{}"),
        ("commands/s", "commands_per_second", "{:.2f}"),
        ("commands/s and instance", "commands_per_second_and_instance", "{:.3f}"),
        ("of these getMore", "get_mores_per_second_and_instance", "{:.3f}"),
        ("server CPU per second", "server_cpu_ms_per_second", "{:.1f} ms"),
    ),
    "busy": (
        ("instances", "instances", "{}"),
        ("slots busy", "share", "{:.0%}"),
        ("slots per instance", "concurrency", "{}"),
        ("jobs/s", "jobs_per_second", "{:,.0f}"),
        *_LONE,
    ),
    "full": (
        ("job", "job_ms", "{:.0f} ms"),
        ("names", "names", "{}"),
        ("instances", "instances", "{}"),
        ("jobs/s", "jobs_per_second", "{:,.0f}"),
        ("commands", "all_commands", "{:.3f}"),
        ("claims", "claims", "{:.3f}"),
        ("find-and-modify", "find_and_modify", "{:.3f}"),
        ("keys examined", "keys_examined", "{:.1f}"),
        ("server CPU", "server_cpu_ms", "{:.3f} ms"),
    ),
    "lost": (
        ("instances", "instances", "{}"),
        ("processes", "processes", "{}"),
        ("one process", "fault", "{}"),
        ("trials", "trials", "{}"),
        *_PICKUP,
        ("max", "max_ms", "{:.1f} ms"),
    ),
}
_TITLES = {
    "idle": "Idle cluster",
    "lone": "Lone jobs, all instances idle; per job",
    "busy": "Partly busy, jobs of 200 ms; per job",
    "full": "Full queue, concurrency 20; per job",
    "lost": "Pick-up of a lone job right after a process was lost",
    "reactive": "Lone changes, all instances idle; per change",
}
_NOTE = "¹ All but inserts, updates and getMore."


def tables(result: dict[str, Any]) -> str:
    """Return all tables of a result."""
    return "\n\n".join([*_tables(result["rows"]), _NOTE])


def _tables(rows: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    for scenario, columns in _COLUMNS.items():
        if scenario in rows:
            lines = [_TITLES[scenario], ""]
            lines.append(_row([title for title, _, _ in columns]))
            lines.append("|" + "---:|" * len(columns))
            lines += [
                _row([_cell(row[key], layout) for _, key, layout in columns])
                for row in rows[scenario]
            ]
            yield "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object, layout: str) -> str:
    return "" if value is None else layout.format(value)
