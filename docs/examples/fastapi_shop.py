"""A shop in FastAPI that confirms orders in jobs. Its lifespan has the engine of the database, in requests and in jobs alike.

pip install uvicorn aiosqlite 'sqlalchemy[asyncio]' 'fusion-queue[fastapi]'
cd docs/examples
python fastapi_shop.py                      # makes the tables, in shop.db or where SHOP_DATABASE says
uvicorn --workers 2 fastapi_shop:app
fusion worker orders --tasks fastapi_shop   # beside it

curl -X POST -H 'X-Request-ID: of-anna' http://127.0.0.1:8000/orders/book
curl http://127.0.0.1:8000/confirmed
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Request
from sqlalchemy import select
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from fusion import AsyncQueue, Retry, job
from fusion.contrib.fastapi import Lifespan, async_queue, carry_request_ids

logging.basicConfig(format="%(levelname)s [%(request_id)s] %(message)s", level=logging.INFO, force=True)
log = logging.getLogger("shop")
DATABASE = os.environ.get("SHOP_DATABASE", "sqlite+aiosqlite:///shop.db")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    engine = create_async_engine(DATABASE)
    async with AsyncQueue():  # closes its connections in the end
        yield {"sessions": async_sessionmaker(engine, expire_on_commit=False)}
    await engine.dispose()


app = FastAPI(lifespan=lifespan)
carry_request_ids(app)
in_lifespan = Lifespan(app)
Orders = Annotated[AsyncQueue, async_queue("orders")]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    article: Mapped[str]
    #: The process that wrote it.
    process: Mapped[int] = mapped_column(default=os.getpid)


class Confirmation(Base):
    __tablename__ = "confirmations"

    order_id: Mapped[int] = mapped_column(primary_key=True)
    process: Mapped[int] = mapped_column(default=os.getpid)


@job("orders")
@in_lifespan
async def confirm(order_id: int) -> None:
    """Confirm an order, once: a job may run again."""
    async with in_lifespan.state["sessions"]() as session:
        if await session.get(Confirmation, order_id) is None:
            session.add(Confirmation(order_id=order_id))
            await session.commit()
            log.info("order %d is confirmed", order_id)


@app.post("/orders/{article}")
async def order(request: Request, article: str, orders: Orders) -> dict[str, int]:
    async with request.state.sessions() as session:
        new = Order(article=article)
        session.add(new)
        await session.commit()
        await orders.options(retry=Retry(5, interval=1, on=Exception)).enqueue(confirm, new.id)
        return {"order": new.id}


@app.get("/confirmed")
async def confirmed(request: Request) -> list[int]:
    async with request.state.sessions() as session:
        return list(await session.scalars(select(Confirmation.order_id).order_by(Confirmation.order_id)))


async def make_tables() -> None:
    engine = create_async_engine(DATABASE)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(make_tables())
