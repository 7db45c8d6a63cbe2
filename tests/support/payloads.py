"""Everything that a job's data may contain."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from bson import (
    Binary,
    Code,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
)
from hypothesis import strategies as st

ONE_OF_EACH: Final[dict[str, Any]] = {
    "double": 1.5,
    "string": "ça va? 🐟",
    "document": {"a": {"b": {}}},
    "array": [1, "two", [3.0], {}],
    "binary": b"\x00\xff",
    "binary of a subtype": Binary(b"\x01", 128),
    "object id": ObjectId(),
    "boolean": True,
    "date": datetime(2026, 5, 5, 12, 0, 0, 123_000, tzinfo=UTC),
    "null": None,
    "regular expression": Regex("^a.*z$", re.IGNORECASE),
    "reference": DBRef("users", ObjectId()),
    "code": Code("return 1"),
    "code with scope": Code("return x", {"x": 1}),
    "int32": 2**31 - 1,
    "int64": Int64(2**40),
    "timestamp": Timestamp(1_700_000_000, 3),
    "decimal": Decimal128(Decimal("12.34")),
    "min key": MinKey(),
    "max key": MaxKey(),
    "keys that look like operators": {"$set": {"a.b": 1}, "$inc": 2, "": 3},
    "text that looks like a field": "$name",
}
"""A value of every BSON type, with a description."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
instants = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)).map(
    lambda instant: instant.replace(microsecond=instant.microsecond // 1000 * 1000)
)
object_ids = st.binary(min_size=12, max_size=12).map(ObjectId)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Int64),
    st.floats(allow_nan=False),
    texts,
    st.binary(max_size=20),
    st.builds(Binary, st.binary(max_size=20), st.integers(128, 254)),
    object_ids,
    instants,
    st.builds(Regex, keys, st.sampled_from([0, re.IGNORECASE, re.MULTILINE | re.DOTALL])),
    st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.decimals(allow_nan=False, places=6, min_value=-(10**9), max_value=10**9).map(Decimal128),
    st.builds(Code, texts),
    st.builds(DBRef, keys.filter(bool), object_ids),
    st.just(MinKey()),
    st.just(MaxKey()),
)
payloads: Final[st.SearchStrategy[Any]] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
"""Any value that survives encoding to BSON and decoding unchanged."""
