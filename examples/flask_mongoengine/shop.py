"""The model and the queue, used by the web process and the worker process."""

import atexit
import os
from typing import Any, ClassVar

import mongoengine
from mongoengine.connection import get_db

from monque_core import Job, SyncMonque


class Customer(mongoengine.Document):  # type: ignore[misc]  # MongoEngine has no types
    objects: ClassVar[Any]
    address = mongoengine.StringField(primary_key=True)
    welcomed = mongoengine.BooleanField(default=False)


def make_queue() -> SyncMonque:
    """Connect MongoEngine to MONGODB_URI, and return a queue on the same connection."""
    mongoengine.connect("shop", host=os.environ["MONGODB_URI"], uuidRepresentation="standard")
    atexit.register(mongoengine.disconnect)
    queue = SyncMonque(get_db())
    queue.worker("welcome", welcome, concurrency=10)
    return queue


def welcome(job: Job[str]) -> None:
    """Welcome a customer; a plain function runs in a thread, so MongoEngine may block."""
    customer = Customer.objects.get(address=job.data)
    print(f"To {job.data}: welcome", flush=True)
    customer.update(welcomed=True)
