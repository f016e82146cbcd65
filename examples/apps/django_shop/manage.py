"""Django: an order and its message in one transaction, a relay, and a consumer whose bill and mark are one transaction.

pip install ".[server,django]"
sparrowmq dev &
export NAMESRV_ADDR=127.0.0.1:9876
cd examples/apps/django_shop
python manage.py migrate --run-syncdb
python manage.py relay &
python manage.py bill &
python manage.py runserver --noreload 8000 &
curl -sS --retry 60 --retry-delay 1 --retry-connrefused -X POST localhost:8000/orders/o-1
curl -sS --retry 60 --retry-delay 1 --retry-all-errors --fail localhost:8000/bills/o-1
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
