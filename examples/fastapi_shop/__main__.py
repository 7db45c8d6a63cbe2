"""A shop on FastAPI whose jobs run in the same process: `make example NAME=fastapi_shop`.

Then `curl -X POST localhost:8000/customers/ada@shop.example`, or look at localhost:8000/docs.
"""

import os

import uvicorn

from examples.fastapi_shop.app import app

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
