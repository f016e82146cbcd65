"""The least that Django needs."""

import os

DEBUG = True
SECRET_KEY = "only for this example"
ROOT_URLCONF = "shop.views"
INSTALLED_APPS = ["sparrowmq.once.in_django", "shop"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DB", "shop.db"),
        "OPTIONS": {"timeout": 20},
    }
}
