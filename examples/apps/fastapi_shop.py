"""FastAPI: one client for the application, opened and closed by its lifespan, and a handler beside the requests.

pip install ".[server]" fastapi uvicorn
sparrowmq dev &
export NAMESRV_ADDR=127.0.0.1:9876
uvicorn --app-dir examples/apps --port 8000 fastapi_shop:app &
curl -sS --retry 60 --retry-delay 1 --retry-connrefused -X POST localhost:8000/orders/o-1
curl -sS --retry 60 --retry-delay 1 --retry-all-errors --fail localhost:8000/bills/o-1
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request

import sparrowmq

billed: set[str] = set()


async def bill(order: str) -> None:
    billed.add(order)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with sparrowmq.connect() as mq, asyncio.TaskGroup() as tasks:
        app.state.mq = mq
        mq.handler("orders", group="billing", start="earliest")(bill)
        serving = tasks.create_task(mq.serve())
        yield
        serving.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order}")
async def order(order: str, request: Request) -> dict[str, str]:
    sent = await request.app.state.mq.send("orders", order.encode(), keys=order)
    return {"sent": sent.msg_id}


@app.get("/bills/{order}")
async def show(order: str) -> dict[str, str]:
    if order not in billed:
        raise HTTPException(503, f"order {order} is not billed yet")
    return {"billed": order}
