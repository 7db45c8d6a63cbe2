"""Reading documents of which the driver cannot decode some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bson
from bson.codec_options import TypeRegistry
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument

from monque_core.errors import InvalidJobError
from monque_core.store.driver import Collection, Document, Driver, of_majority

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bson.codec_options import CodecOptions

    from monque_core.store.driver import Session, Update


class Undecodable(dict[str, Any]):
    """The readable part of a document that cannot be decoded, for example its id."""


class LenientCollection(Collection):
    """A collection in which one document that cannot be decoded does not hide the others."""

    def __init__(self, handle: Driver, name: str) -> None:
        super().__init__(handle, name)
        raw = handle.codec.with_options(document_class=RawBSONDocument)
        self._raw: Any = self.native.with_options(codec_options=raw)

    async def find(
        self,
        filter: Mapping[str, object],
        *,
        session: Session | None = None,
        majority: bool = False,
        **options: object,
    ) -> list[Document]:
        """Return all matching documents; those that cannot be decoded are `Undecodable`."""
        try:
            return await super().find(filter, session=session, majority=majority, **options)
        except InvalidBSON:
            raw = of_majority(self._raw) if majority else self._raw
            cursor = raw.find(filter, session=session, **options)
            return self._decoded(await self._driver.read(cursor, session))

    async def aggregate(
        self, pipeline: Sequence[Mapping[str, object]], **options: Any
    ) -> list[Document]:
        """Return the result of a pipeline; documents that cannot be decoded are `Undecodable`."""
        try:
            return await super().aggregate(pipeline, **options)
        except InvalidBSON:
            cursor = await self._driver.call(self._raw.aggregate, pipeline, **options)
            return self._decoded(await self._driver.read(cursor))

    async def find_one_and_update(
        self,
        filter: Mapping[str, object],
        update: Update,
        *,
        session: Session | None = None,
        **options: object,
    ) -> Document | None:
        """Update one document; raise `InvalidJobError` if it was updated but cannot be decoded."""
        try:
            return await super().find_one_and_update(filter, update, session=session, **options)
        except InvalidBSON as error:
            raise undecodable(error) from error

    def _decoded(self, documents: Sequence[Any]) -> list[Document]:
        return [_decode(document, self.codec) for document in documents]


def undecodable(error: Exception | str, job_id: object = None) -> InvalidJobError:
    """Return the error for a document that cannot be decoded."""
    which = "" if job_id is None else f", in the document {str(job_id)!r}"
    return InvalidJobError("data", None, f"the stored job cannot be decoded: {error}{which}")


def _decode(document: RawBSONDocument, codec: CodecOptions[Document]) -> Document:
    try:
        return bson.decode(document.raw, codec)
    except InvalidBSON as error:
        # Replace invalid UTF-8, and use no decoder of the application.
        lenient = codec.with_options(
            unicode_decode_error_handler="replace",
            type_registry=TypeRegistry(),
            document_class=RawBSONDocument,
        )
        found = Undecodable(RawBSONDocument(document.raw, lenient))
        found["data"] = str(error)
        return found
