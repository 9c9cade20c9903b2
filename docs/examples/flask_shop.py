"""A shop in Flask that confirms orders in jobs. Sessions of SQLAlchemy, in requests and in jobs alike.

pip install gunicorn 'fusion-queue[flask,sqlalchemy]'
cd docs/examples
python flask_shop.py                        # makes the tables, in shop.db or where SHOP_DATABASE says
gunicorn --workers 2 --preload flask_shop:app
fusion worker orders --tasks flask_shop     # beside it

curl -X POST -H 'X-Request-ID: of-anna' http://127.0.0.1:8000/orders/book
curl http://127.0.0.1:8000/confirmed
"""

from __future__ import annotations

import logging
import os

from flask import Flask, current_app
from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, scoped_session, sessionmaker

from fusion import Retry, job
from fusion.contrib.flask import Fusion
from fusion.contrib.sqlalchemy.sessions import per_job, scope_of_job

logging.basicConfig(format="%(levelname)s [%(request_id)s] %(message)s", level=logging.INFO, force=True)
log = logging.getLogger("shop")

app = Flask(__name__)
app.config["SHOP"] = "The corner shop"
Fusion(app)

engine = create_engine(os.environ.get("SHOP_DATABASE", "sqlite:///shop.db"))
Session = scoped_session(sessionmaker(engine), scopefunc=scope_of_job)
per_job(Session, engine)


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
    shop: Mapped[str]
    process: Mapped[int] = mapped_column(default=os.getpid)


@job("orders", retry=Retry(5, interval=1, on=Exception))
def confirm(order_id: int) -> None:
    """Confirm an order, once: a job may run again."""
    if Session.get(Confirmation, order_id) is None:
        Session.add(Confirmation(order_id=order_id, shop=current_app.config["SHOP"]))
        Session.commit()
        log.info("order %d is confirmed", order_id)


@app.post("/orders/<article>")
def order(article: str) -> dict[str, int]:
    new = Order(article=article)
    Session.add(new)
    Session.commit()
    confirm.delay(new.id)
    return {"order": new.id}


@app.get("/confirmed")
def confirmed() -> list[int]:
    return list(Session.scalars(select(Confirmation.order_id).order_by(Confirmation.order_id)))


@app.teardown_appcontext
def close(error: BaseException | None) -> None:
    Session.remove()


if __name__ == "__main__":
    Base.metadata.create_all(engine)
