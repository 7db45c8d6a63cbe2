"""A MongoDB of your own: real `mongod` processes that live and die with their owner."""

from monque_core.local.mongo import LocalMongo
from monque_core.local.node import Node

__all__ = ["LocalMongo", "Node"]
