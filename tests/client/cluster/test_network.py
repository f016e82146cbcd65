import os

import pytest

from sparrowmq.client.cluster.network import local_ip, unique_client_id


def test_the_address_is_the_one_that_the_name_server_sees():
    assert local_ip(["127.0.0.1:9876"]) == "127.0.0.1"
    assert local_ip(["[::1]:9876"]) in ("::1", "127.0.0.1")


def test_a_name_server_given_by_name_is_no_obstacle():
    ip = local_ip(["name.invalid:9876"])
    assert ip.count(".") == 3 or ":" in ip


@pytest.mark.covers("S-CFG-02", "S-CFG-03")
def test_two_clients_of_one_process_have_different_ids():
    one, two = unique_client_id("10.0.0.1"), unique_client_id("10.0.0.1")
    assert one != two
    assert one.startswith(f"10.0.0.1@{os.getpid()}#")
