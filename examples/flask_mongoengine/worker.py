"""The worker process: `python -m examples.flask_mongoengine.worker`, with MONGODB_URI set."""

from examples.flask_mongoengine.shop import make_queue

if __name__ == "__main__":
    make_queue().run()
    print("worker has ended", flush=True)
