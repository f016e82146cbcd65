"""What goes wrong with disks and with the log of one broker, and the remedies, as in causes.py."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.conditions.cause import Course, cause, program, sending
from tests.conditions.field import ADMIN, OVER_S, Field, FieldBroker, until
from tests.crash.small_disk import SmallDisk, fill

_KEYED: Final = """
import asyncio, sys
from sparrowmq import Credentials, connect
async def main():
    async with connect(sys.argv[1], credentials=Credentials(sys.argv[3], sys.argv[4])) as mq:
        for number in range(1 << 30):
            await mq.send(sys.argv[2], b"x", keys=[f"a{number}-{each}" for each in range(20)])
asyncio.run(main())
"""


@cause("disk_full", "broker-c")
def a_full_disk(field: Field) -> Course:
    yield from full_disk(field, "broker-c", field.c)


@cause("disk_full", "slave-a")
def a_full_disk_of_a_slave(field: Field) -> Course:
    yield from full_disk(field, "slave-a", field.a)


def full_disk(field: Field, name: str, master: FieldBroker) -> Course:
    """Fill the disk of a broker while messages come to its master."""
    field.create("Filling", master)
    field.disks[name].fill()
    with sending(field, "Filling"):
        remedy = yield
    remedy.names("free some space on that disk")
    field.disks[name].free()


@cause("disk_nearly_full", "broker-c")
def a_disk_that_is_nearly_full(field: Field) -> Course:
    disk = os.statvfs(field.disks["broker-c"].folder)
    size = disk.f_bavail * disk.f_frsize - disk.f_blocks * disk.f_frsize * 6 // 100
    ballast = field.disks["broker-c"].folder / "more"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    remedy = yield
    remedy.names("free some space on that disk")
    ballast.unlink()


@cause("store_failed", "broker-d")
def a_thin_disk_whose_volume_is_full(field: Field) -> Course:
    broker = field.start_d()
    field.create("Thin", broker)
    ballast = field.below.folder / "ballast"
    fill(ballast)
    with sending(field, "Thin"):
        remedy = yield
    remedy.names("look for errors of the disk in the system's log (dmesg)", "then restart the broker")
    seen = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    assert "I/O error" in seen[-10_000:]
    ballast.unlink()
    broker.stop()
    broker.start_again()


@cause("disk_hangs", "broker-d")
def a_disk_that_answers_no_write(field: Field) -> Course:
    broker = field.start_d()
    field.create("Hanging", broker)
    field.below.freeze()
    try:
        with sending(field, "Hanging"):
            remedy = yield
        remedy.names("look at the disk", "if the disk does not recover, stop the broker")
    finally:
        field.below.thaw()


@cause("index_incomplete", "broker-d", root="disk_nearly_full")
def an_index_on_a_full_disk(field: Field) -> Course:
    broker = field.start_d()
    field.create("Indexed", broker)
    field.disks["index-d"].fill()
    producer = program(_KEYED, field.namesrv, "Indexed", *ADMIN)
    try:
        remedy = yield
    finally:
        producer.kill()
        producer.wait()
    remedy.names("free some space for index files", "filled by itself")
    field.disks["index-d"].free()


@cause("state_not_logged", "broker-c", root="disk_full")
def a_topic_that_is_made_on_a_full_disk(field: Field) -> Course:
    field.create("Filling", field.c)
    field.disks["broker-c"].fill()
    with sending(field, "Filling"), _kept_full(field.disks["broker-c"]):
        until(lambda: "disk_full" in field.c.conditions, 60, "the disk is not full")
        field.create(f"T{time.time_ns()}", field.c)
        remedy = yield
    remedy.names("free some space")
    field.disks["broker-c"].free()


@cause("log_damaged", "broker-a")
def a_flipped_bit_of_a_master_with_a_slave(field: Field) -> Course:
    field.create("Damaged", field.a)
    secret = _secret_sent(field, "Damaged")
    field.slave.stop()
    _flip_a_bit(field.a, secret)
    remedy = yield
    remedy.names("start a slave", "it repairs itself")
    field.slave.start_again()


@cause("log_fenced", "broker-c")
def a_flipped_bit_that_a_start_has_passed_over(field: Field) -> Course:
    field.create("PassedOver", field.c)
    text = field.c.conf.read_text()
    field.c.conf.write_text(f"{text}corruptPolicy=quarantine\n")
    _flip_a_bit(field.c, _secret_sent(field, "PassedOver"))
    field.c.stop()
    field.c.start_again()
    remedy = yield
    remedy.names("otherwise delete the file that the text names")
    (file,) = (field.c.store / "set-aside").iterdir()
    assert file.name in remedy.what
    file.unlink()
    until(lambda: "log_fenced" not in field.c.conditions, OVER_S, "it takes more than the remedy says")
    field.c.stop()
    field.c.conf.write_text(text)
    field.c.start_again()


@cause("log_cut", "broker-c")
def a_tail_of_zeros_that_a_start_has_cut_off(field: Field) -> Course:
    field.create("Cut", field.c)
    text = field.c.conf.read_text()
    field.c.conf.write_text(f"{text}corruptPolicy=quarantine\n")
    secret = os.urandom(16).hex()
    field.run("message", "send", "Cut", secret)
    field.c.kill()
    for file in sorted((field.c.store / "commitlog").iterdir()):
        content = file.read_bytes()
        if (at := content.find(secret.encode())) >= 0:
            with file.open("r+b") as damaged:
                damaged.seek(at)
                damaged.write(bytes(len(content) - at))
    field.c.start_again()
    remedy = yield
    field.c.stop()
    field.c.conf.write_text(text)
    field.c.start_again()
    assert field.shown("log_cut", field.c).text == remedy.text, "a restart forgets it"
    (file,) = (field.c.store / "set-aside").glob("*.lost")
    assert file.name in remedy.what
    field.follow(remedy, "store resend")
    assert not file.exists()


def _secret_sent(field: Field, topic: str) -> str:
    """Send two messages that no consumer reads, and return the text of the first one."""
    secret = os.urandom(16).hex()
    field.run("message", "send", topic, secret)
    field.run("message", "send", topic, "behind it")
    return secret


def _flip_a_bit(broker: FieldBroker, secret: str) -> None:
    """Damage the message with this text, while its broker runs."""
    for file in sorted((broker.store / "commitlog").iterdir()):
        content = file.read_bytes()
        if (at := content.find(secret.encode())) >= 0:
            with file.open("r+b") as damaged:
                damaged.seek(at)
                damaged.write(bytes([content[at] ^ 1]))


@cause("state_not_saved", "broker-c")
def a_folder_of_state_that_is_gone(field: Field) -> Course:
    folder = field.c.store / "config"
    away = folder.rename(folder.with_name("config.away"))
    folder.write_text("")
    field.run("topic", "create", f"T{time.time_ns()}", may_fail=True)
    remedy = yield
    remedy.names("see that the folder config of its store is there")
    folder.unlink()
    away.rename(folder)


@cause("log_not_written", "broker-c")
def a_log_folder_that_is_gone(field: Field) -> Course:
    folder = field.c.log.parent
    away = folder.rename(folder.with_name("log.away"))
    folder.write_text("")
    field.run("broker", "set", "broker-c", "logLevel=DEBUG")
    field.run("broker", "set", "broker-c", "logLevel=INFO")
    remedy = yield
    remedy.names("see that its folder is there")
    folder.unlink()
    away.rename(folder)
    field.run("broker", "set", "broker-c", "logLevel=DEBUG")
    field.run("broker", "set", "broker-c", "logLevel=INFO")


@cause("settings_not_saved", "broker-c")
def a_settings_file_that_cannot_be_written(field: Field) -> Course:
    folder = field.c.conf.parent
    away = folder.rename(folder.with_name("conf.away"))
    field.run("broker", "set", "broker-c", "slowRequestMillis=1001", may_fail=True)
    remedy = yield
    remedy.names("see that the settings file and its folder are there", "tried again every few seconds")
    away.rename(folder)
    until(lambda: "slowRequestMillis=1001" in field.c.conf.read_text(), 30, "the setting is not saved")


@cause("delivery_late", "broker-c", root="disk_full", is_slow=True)
def delayed_messages_on_a_full_disk(field: Field) -> Course:
    field.create("Delayed", field.c)
    with sending(field, "Delayed", delay_level=2):
        until(lambda: "delay_parked{" in field.c.get("/metrics")[1], 60, "no message is delayed")
        field.disks["broker-c"].fill()
        remedy = yield
    remedy.names("do what the text says")
    assert "free some space" in remedy.what
    field.disks["broker-c"].free()


@contextmanager
def _kept_full(disk: SmallDisk) -> Iterator[None]:
    """Take the room again that the broker frees when it deletes its oldest messages."""
    is_over = threading.Event()

    def fill() -> None:
        while not is_over.wait(0.1):
            disk.fill()

    filling = threading.Thread(target=fill)
    filling.start()
    try:
        yield
    finally:
        is_over.set()
        filling.join()
