"""Classes that the modules under test name for type checkers alone."""

from __future__ import annotations


class Absent: ...


class AbsentBase: ...


class Derived(AbsentBase): ...
