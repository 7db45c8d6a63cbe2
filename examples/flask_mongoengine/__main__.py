"""Flask and MongoEngine, with a worker beside the web: `make example NAME=flask_mongoengine`.

Then `curl -X POST localhost:8000/customers/ada@shop.example`.
"""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import mongoengine

from examples.flask_mongoengine.web import create_app
from examples.mongodb import mongodb_uri

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with contextmanager(mongodb_uri)() as uri:
        os.environ["MONGODB_URI"] = uri
        # Ctrl-C reaches all processes of the terminal, and a second signal would end the worker in
        # the midst of its jobs. So it never sees that one, and is told once, below.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        worker = subprocess.Popen([sys.executable, "-m", "examples.flask_mongoengine.worker"])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        try:
            create_app().run(port=int(os.environ.get("PORT", "8000")))
        finally:
            worker.terminate()
            worker.wait()
            # While there is a MongoDB to say goodbye to.
            mongoengine.disconnect()
