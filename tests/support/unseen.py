"""Classes that the modules under test import only for type checkers."""

from __future__ import annotations


class Absent: ...


class AbsentBase: ...


class Derived(AbsentBase): ...
