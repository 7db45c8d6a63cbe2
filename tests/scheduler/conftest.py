"""Fixtures: a MongoDB without a replica set, a proxy, and handles of the test's database."""

from __future__ import annotations

from tests.support.fixtures import any_db, proxy, standalone_db, standalone_uri

__all__ = ["any_db", "proxy", "standalone_db", "standalone_uri"]
