"""`mqproxy`, also called `sparrowmq proxy`: the gRPC port of RocketMQ 5 in front of a cluster, ours or Apache's.

    mqproxy -n 10.0.0.5:9876                                                     127.0.0.1:8081
    mqproxy -n 10.0.0.5:9876 --host 0.0.0.0 --address mq.example.com --insecure   for other machines
    mqproxy -n 10.0.0.5:9876 -pc rmq-proxy.json                                  with settings of Apache's proxy
    mqproxy -n 10.0.0.5:9876 -pm local -bc broker.conf                           is mqbroker --enable-proxy

With `--access-key` and `--secret-key` of a Super user of the brokers, clients need users of the brokers (ACL 2.0).
Without them mqproxy serves clusters without access control.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, NoReturn

import click
from click.core import ParameterSource

from sparrowmq.cli.servers.serve import broker, fail, log_on_stderr, run
from sparrowmq.cli.servers.settings_sources import ProxyFile
from sparrowmq.cli.terminal.cluster_command import HELP, chosen_credentials, chosen_namesrv, chosen_tls, cluster_options
from sparrowmq.errors import ConfigError
from sparrowmq.grpc import packages
from sparrowmq.settings.argument_types import PATH, Whole
from sparrowmq.version import VERSION

_LOCAL_OPTIONS: Final = {"namesrv", "proxy_file", "mode", "broker_file", "insecure", "verbose"}


def _take_file(ctx: click.Context, _param: click.Parameter, path: str | None) -> ProxyFile | None:
    """Read the file, whose values count for options that are not given."""
    if path is None:
        return None
    try:
        file = ProxyFile.load(path)
        ctx.default_map = file.options()
    except ConfigError as error:
        fail(error)
    return file


def _run_broker(file: ProxyFile | None, broker_file: str | None, verbose: bool, insecure: bool) -> NoReturn:
    """Run a broker with a gRPC port instead of a proxy in front of a cluster."""
    ctx = click.get_current_context()
    typed = {name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if wrong := sorted(param.opts[0] for param in ctx.command.params if param.name in typed - _LOCAL_OPTIONS):
        fail(ConfigError(f"{', '.join(wrong)}: -pm local starts a broker; set this in its file, that of -bc"))
    words = ["--enable-proxy", *(["--insecure"] if insecure else []), *(["-v"] if verbose else [])]
    options = {"-c": broker_file, "-n": ctx.meta.get("sparrowmq.line.namesrv"), "-pc": file and file.path}
    words += [word for option, value in options.items() if value for word in (option, value)]
    sys.exit(broker.main(words, ctx.info_name))


@click.command("proxy", context_settings=HELP)
@cluster_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Where it listens.")
@click.option("--port", type=Whole(0, 65535), default=8081, show_default=True, help="0: a free one.")
@click.option("--address", "advertised_host", metavar="HOST", help="The host by which clients reach it.")
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
@click.option("--metrics-port", type=Whole(0, 65535), metavar="PORT", help="Serve /readyz and /metrics at 127.0.0.1.")
@click.option(
    *("-pc", "--proxyConfigPath", "proxy_file"),
    metavar="FILE",
    is_eager=True,
    callback=_take_file,
    help="Apache's rmq-proxy.json, for the options that are not given.",
)
@click.option(
    *("-pm", "--proxyMode", "mode"),
    type=click.Choice(["cluster", "local"], case_sensitive=False),
    default="cluster",
    show_default=True,
    help="local: a broker with a gRPC port, as `mqbroker --enable-proxy`.",
)
@click.option(
    "-bc", "--brokerConfigPath", "broker_file", metavar="FILE", help="The settings of that broker: its broker.conf."
)
@click.option("-v", "--verbose", is_flag=True, help="Log what happens, and not only what is wrong.")
@click.version_option(VERSION, prog_name="sparrowmq")
def proxy(verbose: bool, proxy_file: ProxyFile | None, mode: str, broker_file: str | None, **options: Any) -> None:
    """Let the official clients of RocketMQ 5 use a cluster, by gRPC."""
    if mode == "local":
        _run_broker(proxy_file, broker_file, verbose, options["insecure"])
    log_on_stderr(verbose)
    logging.getLogger("sparrowmq.metrics.conditions").setLevel(logging.INFO)  # also when one is over
    try:
        packages.check_installed("mqproxy")
        from sparrowmq.mqproxy.proxy import Proxy, ProxySettings

        credentials = chosen_credentials()
        if proxy_file is not None:
            proxy_file.check_proxy(has_account=credentials is not None)
        settings = ProxySettings(**options, credentials=credentials)
        namesrv, tls = chosen_namesrv(), chosen_tls()
    except ConfigError as error:
        fail(error)
    run(lambda: Proxy(settings, namesrv, tls), lambda server: f"the proxy serves {server.description}")
