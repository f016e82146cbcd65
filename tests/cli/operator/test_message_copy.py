"""`sparrowmq message copy` and `replay`, at a broker."""

import json
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

import sparrowmq.sync
from sparrowmq.cli.message import message
from sparrowmq.client.client import Client
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.testing.background import BackgroundCluster
from tests.auth.asked import ADMIN, SAMPLE
from tests.hostile_bodies import send_damaged

COUNT = 450  # more than two batches


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("copying")) as cluster:

        async def fill():
            async with Client(cluster.namesrv) as mq:
                for topic in ("From", "To", "Other", "Few"):
                    await mq.admin.create_topic(topic, queues=1 if topic == "Few" else 4)
                for number in range(COUNT):
                    await mq.send(
                        "From",
                        f"{number}".encode(),
                        tag="A" if number % 3 else "B",
                        keys=[f"k{number}"],
                        properties={"number": f"{number}"},
                        fifo=f"{number % 7}",
                    )

        cluster.run(fill())
        yield cluster


@pytest.fixture
def run(cluster):
    def run(*words, code=0, **options):
        done = CliRunner().invoke(message, [*words, "-n", cluster.namesrv], **options)
        assert code in (None, done.exit_code), done.output
        return done

    return run


def of(run, topic):
    found = run("find", topic, "--since", "1h", "--limit", "5000", "-o", "json", code=None)
    return json.loads(found.stdout) if found.exit_code == 0 else []


def test_a_copy_has_every_message_with_what_was_its_own_and_each_queue_in_its_order(run):
    assert f"copied {COUNT} messages of From to To" in run("copy", "From", "To", "--yes").stdout
    originals, copies = of(run, "From"), of(run, "To")
    assert {(row["body"], row["tag"], row["keys"], row["queue"]) for row in copies} == {
        (row["body"], row["tag"], row["keys"], row["queue"]) for row in originals
    }
    assert len(copies) == COUNT
    for queue in range(4):
        told = [int(row["body"]) for row in sorted(copies, key=lambda row: row["offset"]) if row["queue"] == queue]
        assert told == [
            int(row["body"]) for row in sorted(originals, key=lambda row: row["offset"]) if row["queue"] == queue
        ]
    shown = json.loads(run("show", copies[0]["id"], "To").stdout)
    assert shown["properties"]["number"] == copies[0]["body"]


def test_only_what_was_chosen_is_copied_after_a_question(run):
    assert f"would copy {COUNT // 3} messages" in run("copy", "From", "Few", "--tag", "B", "--dry-run").stdout
    refused = run("copy", "From", "Few", "--tag", "B", input="n\n", code=1)
    assert f"copy {COUNT // 3} messages of From to Few?" in refused.output and of(run, "Few") == []
    run("copy", "From", "Few", "--tag", "B", "--limit", "5", input="y\n")
    assert [row["tag"] for row in of(run, "Few")] == ["B"] * 5
    assert "would copy 0 messages" in run("copy", "From", "Few", "--until", "1h", "--dry-run").stdout
    assert "would copy 0 messages" in run("copy", "From", "Few", "--since", "0s", "--dry-run").stdout


def test_another_cluster_takes_the_copy(run, tmp_path):
    with BackgroundCluster(tmp_path) as other:
        with sparrowmq.sync.connect(other.namesrv) as mq:
            mq.admin.create_topic("From", queues=2)
        run("copy", "From", "From", "--to", other.namesrv, "--yes")
        with sparrowmq.sync.connect(other.namesrv) as mq:
            assert sum(queue.max_offset for queue in mq.admin.topic("From").queues) == COUNT


def test_another_cluster_with_access_control_knows_who_copies(run, tmp_path):
    (tmp_path / "plain_acl.yml").write_text(SAMPLE)
    account = Credentials(*ADMIN)
    with BackgroundCluster(tmp_path / "store", acl=True, acl_file=tmp_path / "plain_acl.yml") as other:
        with sparrowmq.sync.admin(other.namesrv, credentials=account) as admin:
            admin.create_topic("From")
        words = ("copy", "From", "From", "--to", other.namesrv, "--yes", "--limit", "5")
        assert "No accessKey is configured" in run(*words, code=1).stderr
        keys = {"SPARROWMQ_TO_ACCESS_KEY": ADMIN[0], "SPARROWMQ_TO_SECRET_KEY": ADMIN[1]}
        assert "copied 5 messages" in run(*words, env=keys).stdout
        typed = ("--to-access-key", ADMIN[0], "--to-secret-key", ADMIN[1])
        assert "copied 5 messages" in run(*words, *typed).stdout
        assert "secret_key of the credentials is empty" in run(*words, *typed[:2], code=2).stderr
        assert "add --to" in run("copy", "From", "To", *typed, code=2).stderr


def test_what_goes_to_another_cluster_is_encrypted_as_is_said(run, tmp_path):
    trusting = tmp_path / "tls.properties"
    trusting.write_text("tls.client.authServer=false\n")
    with BackgroundCluster(tmp_path / "store") as other:  # which takes both, with a certificate of its own making
        with sparrowmq.sync.admin(other.namesrv) as admin:
            admin.create_topic("From")
        words = ("copy", "From", "From", "--to", other.namesrv, "--yes", "--limit", "5")
        assert "certificate" in run(*words, "--to-tls", code=1).stderr
        assert "copied 5 messages" in run(*words, "--to-tls-config", str(trusting)).stdout


def test_one_group_gets_messages_again_and_no_other_does(run, cluster):
    got, others = [], []
    with sparrowmq.sync.admin(cluster.namesrv) as admin:
        for group in ("again", "others"):
            admin.create_group(group)
            admin.reset(group, "From", "latest")
    with (
        sparrowmq.sync.connect(cluster.namesrv) as mq,
        mq.subscribe("From", lambda each: others.append(each.text()), group="others"),
        mq.subscribe("From", lambda each: got.append((each.topic, each.text())), group="again"),
    ):
        words = "replay", "From", "again", "--tag", "B", "--limit", "3"
        deadline = time.monotonic() + 20
        while not all(mq.admin.members(group) for group in ("again", "others")):
            assert time.monotonic() < deadline
        run(*words, "--yes")
        while len(got) < 3:
            assert time.monotonic() < deadline, got
        assert {topic for topic, _ in got} == {"From"}
        assert all(int(body) % 3 == 0 for _, body in got)
        assert others == []
    assert "3 messages of From would be sent to group again" in run(*words, "--dry-run").stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["copy", "From", "From"], 2, "onto itself"),
        (["copy", "From", "Absent", "--yes"], 1, "Absent"),
        (["copy", "Absent", "To", "--yes"], 1, "Absent"),
        (["replay", "From", "nobody", "--yes"], 1, "nobody"),
        (["replay", "Absent", "again", "--yes"], 1, "Absent"),
        (["copy", "From", "To", "--rate", "0"], 2, "--rate"),
    ],
)
def test_what_cannot_be_is_told(run, words, code, said):
    assert said in run(*words, code=code).output


def test_interrupted_between_two_batches_it_says_where_it_is(cluster):
    words = "copy", "From", "Slow", "--yes", "--rate", "0.1", "-n", cluster.namesrv
    with sparrowmq.sync.admin(cluster.namesrv) as admin:
        admin.create_topic("Slow")
        process = subprocess.Popen(
            [sys.executable, "-m", "sparrowmq", "message", *words], stdout=subprocess.PIPE, text=True
        )
        try:
            while not admin.topic("Slow").count:
                time.sleep(0.01)
            time.sleep(0.2)  # it has its answer, and waits
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=20)
        finally:
            process.kill()
    assert "were sent; the next one is in" in said and not said.startswith("0 ")


def test_it_does_not_wait_after_the_last_batch(cluster):
    words = "copy", "From", "Other", "--yes", "--rate", "0.01", "--limit", "1", "-n", cluster.namesrv
    subprocess.run([sys.executable, "-m", "sparrowmq", "message", *words], timeout=20, check=True)


def test_a_body_that_cannot_be_decompressed_is_left_out_of_a_copy(run, cluster):
    async def send():
        async with Client(cluster.namesrv) as mq:
            for topic in ("Some", "Sound"):
                await mq.admin.create_topic(topic, queues=1)
            await send_damaged(mq, "Some")
            await mq.send("Some", b"good")

    cluster.run(send())
    done = run("copy", "Some", "Sound", "--yes", code=1)
    assert "copied 1 message of Some to Sound" in done.stdout
    assert "left out the message in Some@broker-0[0] at offset 0: the zlib body is damaged" in done.stdout
    assert [row["body"] for row in of(run, "Sound")] == ["good"]
