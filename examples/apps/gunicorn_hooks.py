"""The configuration of gunicorn for gunicorn_shop.py, which says how to run both."""

import gunicorn_shop

workers = 2
preload_app = True  # The module is loaded before the fork, and the client is opened after it.


def post_fork(server: object, worker: object) -> None:
    gunicorn_shop.open_client()


def worker_exit(server: object, worker: object) -> None:
    gunicorn_shop.close_client()
