"""Flask and MongoEngine, with a separate worker process: `make example NAME=flask_mongoengine`.

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
        # Ctrl-C reaches all processes of the terminal, and a second signal would kill the worker
        # during its jobs. So it ignores Ctrl-C and gets one SIGTERM below.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        worker = subprocess.Popen([sys.executable, "-m", "examples.flask_mongoengine.worker"])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        try:
            create_app().run(port=int(os.environ.get("PORT", "8000")))
        finally:
            worker.terminate()
            worker.wait()
            # Disconnect while MongoDB is still running.
            mongoengine.disconnect()
