"""Applications for `monque worker`, as a user would write them; each is copied to a directory."""

from __future__ import annotations

SHOP = """
import asyncio
import logging
import os
import signal
import time
from contextlib import asynccontextmanager

from pymongo import AsyncMongoClient, MongoClient

from monque_core import Monque
from monque_core.sync.monque import SyncMonque

OPTIONS = {"heartbeat_interval": 1, "collection_name": os.environ["MONQUE_COLLECTION"]}
log = logging.getLogger("shop")


def handle(monque):
    @monque.worker("greet")
    async def greet(job):
        log.info("hello %s", job.data, extra={"who": job.data})

    @monque.worker("wait")
    async def wait(job):
        log.info("waiting in %d", os.getpid())
        while not os.path.exists(job.data):
            await asyncio.sleep(0.02)
        log.info("waited")

    @monque.worker("raise")
    async def fail(job):
        raise ValueError(job.data)

    @monque.worker("block")
    async def block(job):
        log.info("blocking")
        while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            time.sleep(0.05)
        log.info("asked to finish")
        time.sleep(3600)

    return monque


def database(client):
    return client[os.environ["MONQUE_DATABASE"]]


def connect():
    return AsyncMongoClient(os.environ["MONQUE_URI"])


monque = handle(Monque(database(connect()), **OPTIONS))


def make():
    return handle(Monque(database(connect()), **OPTIONS))


async def make_async():
    return make()


@asynccontextmanager
async def make_and_close():
    async with connect() as client:
        yield handle(Monque(database(client), **OPTIONS))
    log.info("closed the client")


def make_blocking():
    return handle(SyncMonque(database(MongoClient(os.environ["MONQUE_URI"])), **OPTIONS))


def fail():
    raise RuntimeError("no configuration")


class Parts:
    inner = monque
"""
