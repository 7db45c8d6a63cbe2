"""`LocalMongo`: real `mongod` processes for development and tests.

- `mongo.LocalMongo` is the public class. It starts one or several `node.Node`, and forms a replica
  set of them (`replica_set`).
- `binary` finds the program `mongod`.
- `guard.Guard` starts a second process, `guard_process`, which is the parent of every `mongod`. The
  owner sends it requests through a pipe. When the owner ends, however it ends, the pipe closes, and
  the guard process ends the servers and removes the temporary directory.

These modules use nothing of the queue, and the queue uses nothing of them.
"""

from monque_core.local.mongo import LocalMongo
from monque_core.local.node import Node

__all__ = ["LocalMongo", "Node"]
