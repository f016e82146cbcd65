"""`mqproxy`, also called `sparrowmq proxy`: ports for clients in front of a cluster, ours or Apache's.

    mqproxy -n 10.0.0.5:9876                                                     127.0.0.1:8081
    mqproxy -n 10.0.0.5:9876 --host 0.0.0.0 --address mq.example.com --insecure   for other machines
    mqproxy -n 10.0.0.5:9876 --remoting-port 8080                                also for 4.x and 5.x remoting clients

With `--access-key` and `--secret-key` of a Super user of the brokers, clients need users of the brokers (ACL 2.0).
Without them mqproxy serves clusters without access control.
"""

from __future__ import annotations

import logging
from typing import Any

import click

from sparrowmq.cli.servers.serve import fail, log_on_stderr, run
from sparrowmq.cli.terminal.asking import HELP, asking, credentials_of, namesrv_of, tls_of
from sparrowmq.errors import ConfigError
from sparrowmq.grpc import packages
from sparrowmq.settings.number_type import Whole
from sparrowmq.settings.path_type import PATH
from sparrowmq.version import VERSION


@click.command("proxy", context_settings=HELP)
@asking
@click.option("--host", default="127.0.0.1", show_default=True, help="Where it listens.")
@click.option("--port", type=Whole(0, 65535), default=8081, show_default=True, help="0: a free one.")
@click.option("--remoting-port", type=Whole(0, 65535), help="Serve clients of the remoting protocol here.")
@click.option("--address", "told", metavar="HOST", help="The host by which clients reach it.")
@click.option("--certificate", type=PATH, metavar="FILE", help="For TLS, with --key; else a self-signed one.")
@click.option("--key", type=PATH, metavar="FILE", help="Of the certificate.")
@click.option("--insecure", is_flag=True, help="Listen where others reach us, without access control.")
@click.option(
    "--signature-age",
    "signature_age_s",
    type=Whole(0, 86_400),
    default=300,
    show_default=True,
    help="The longest age of a client's signature in seconds, with accounts. 0: any.",
)
@click.option(
    "--proxy-protocol",
    "is_behind_proxy",
    is_flag=True,
    help="Each connection to --port begins with a PROXY header (HAProxy: send-proxy), which names the client.",
)
@click.option(
    "--metrics-port",
    type=Whole(0, 65535),
    metavar="PORT",
    help="Serve /readyz and /metrics at 127.0.0.1.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log what happens, and not only what is wrong.")
@click.version_option(VERSION, prog_name="sparrowmq")
def proxy(verbose: bool, **given: Any) -> None:
    """Let the official clients of RocketMQ 5 use a cluster, by gRPC."""
    log_on_stderr(verbose)
    logging.getLogger("sparrowmq.metrics.conditions").setLevel(logging.INFO)  # also when one is over
    try:
        packages.demand("mqproxy")
        from sparrowmq.mqproxy.proxy import Proxy, ProxySettings

        settings = ProxySettings(**given, credentials=credentials_of())
        namesrv, tls = namesrv_of(), tls_of()
    except ConfigError as error:
        fail(error)
    run(
        lambda: Proxy(settings, namesrv, tls),
        lambda server: f"the proxy serves {server.places}",
    )
