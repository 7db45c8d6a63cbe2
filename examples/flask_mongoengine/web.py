"""The web process, for any WSGI server: it enqueues jobs and runs none.

A server that forks must call `create_app` after the fork, since connections do not survive it.
"""

from flask import Flask
from flask.typing import ResponseReturnValue

from examples.flask_mongoengine.shop import Customer, make_queue


def create_app() -> Flask:
    queue = make_queue()
    app = Flask(__name__)

    @app.post("/customers/<address>")
    def sign_up(address: str) -> ResponseReturnValue:
        Customer(address=address).save()
        job = queue.enqueue("welcome", address, unique_key=address)
        return {"job": str(job.id)}, 202

    @app.get("/customers/<address>")
    def show(address: str) -> ResponseReturnValue:
        customer = Customer.objects.get(address=address)
        return {"address": customer.address, "welcomed": customer.welcomed}

    @app.get("/health")
    def health() -> ResponseReturnValue:
        healthy = queue.ping()
        return {"healthy": healthy}, 200 if healthy else 503

    return app
