"""`sparrowmq secure`: make the certificates, accounts and settings of a closed cluster, and renew its certificates.

`init` writes all files to a new folder beside DIR, which becomes DIR only when it is complete. Private files have mode
0600, folders 0700. `renew` signs the certificates again with the keys that they have.

    ca.pem, ca.key              the CA of servers and clients
    etcd-ca.pem, etcd-ca.key    the CA of etcd and its clients, the brokers: no other client may write there
    plan.json                   the certificates, for `renew` and `add-client`
    name-server-1/              namesrv.conf, accounts.yml, certificate.pem, key.pem, ca.pem
    broker-a/                   broker.conf and the same; with failover also those for etcd
    etcd-1/                     etcd.yml and the same
    administrator/, CLIENT/     tls.properties, environment (variables for a shell), certificate.pem, key.pem, ca.pem

The program `openssl` makes keys (elliptic, P-256) and certificates. A server's certificate names its addresses; a
client's names none, so a client cannot pose as a server. A renewed certificate keeps its key, so one file changes.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Final

import click

from sparrowmq.auth.account_files import replace_secret_file
from sparrowmq.auth.accounts import MAX_INVALID_KEY_CHARACTERS
from sparrowmq.cli.terminal.cluster_command import HELP, errors_in_a_sentence
from sparrowmq.errors import ConfigError
from sparrowmq.remoting.listener import EVERYWHERE
from sparrowmq.settings.argument_types import PATH, Whole

PLAN_FILE: Final = "plan.json"
ADMINISTRATOR: Final = "administrator"
AUTHORITY: Final = "ca"
ETCD_AUTHORITY: Final = "etcd-ca"
NAMESRV_PORT: Final = 9876
BROKER_PORT: Final = 10911
ETCD_PORT: Final = 2379
_PORT_STEP: Final = 10  # between the ports of two servers of a kind on one host
_SECRET_BYTES: Final = 24
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?|::1")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
OPENSSL_TIMEOUT_S: Final = 30.0
OWNER_ONLY: Final = 0o600
_CONFIG: Final = """\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[signed]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""
AUTHORITY_DAYS: Final = 3650
_MAX_BROKERS: Final = 26
_FOLDER_ARGUMENT: Final = click.argument("folder", metavar="DIR", type=PATH)
_DAYS_OPTION: Final = click.option(
    "--days", type=Whole(1, AUTHORITY_DAYS), default=365, show_default=True, help="Days that certificates are valid."
)


@dataclass(frozen=True)
class PlanFile:
    place: str  # as in `ClusterOptions`
    name_servers: str  # their addresses
    certificates: list[Certificate]  # all that are signed here

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


@click.group(context_settings=HELP)
def secure() -> None:
    """Make a closed cluster: certificates, accounts and settings, so that no port answers a stranger."""


@secure.command()
@_FOLDER_ARGUMENT
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Host of servers, 127.0.0.1; again for more.")
@click.option("--name-servers", type=Whole(1, 9), default=1, show_default=True)
@click.option("--brokers", type=Whole(1, _MAX_BROKERS), default=1, show_default=True)
@click.option("--slaves", type=Whole(0, 9), default=0, show_default=True, help="So many of each broker.")
@click.option("--failover", "has_failover", is_flag=True, help="The brokers elect a master among them, by etcd.")
@click.option("--etcd", type=Whole(1, 9), default=1, show_default=True, help="So many etcd, with --failover.")
@click.option(
    "--client", "clients", multiple=True, metavar="NAME", help="Account of a program; again for more. [application]"
)
@click.option("--place", metavar="PATH", help="Folder of these files at the servers. By default DIR.")
@click.option("--data", metavar="PATH", default="", help="Folder of the data at the servers. By default --place.")
@click.option("--namesrv-port", type=Whole(), default=NAMESRV_PORT, show_default=True)
@click.option("--broker-port", type=Whole(), default=BROKER_PORT, show_default=True)
@click.option("--etcd-port", type=Whole(), default=ETCD_PORT, show_default=True)
@_DAYS_OPTION
def init(folder: Path, days: int, **options: Any) -> None:
    """Make the files of a closed cluster in the new folder DIR.

    DIR gets one folder for each server and each client. Each server needs its own folder, and no other file.
    """
    folder = folder.expanduser().absolute()
    options["place"] = (options["place"] or str(folder)).rstrip("/")
    options["data"] = options["data"].rstrip("/")
    for name, default in (("hosts", ClusterOptions.hosts), ("clients", ClusterOptions.clients)):
        options[name] = options[name] or default
    with errors_in_a_sentence("secure init"):
        cluster_plan = make_plan(ClusterOptions(**options))
        _write(folder, cluster_plan, options["place"], days)
    click.echo(_next_steps(folder, cluster_plan, options["clients"]))


@secure.command()
@_FOLDER_ARGUMENT
@_DAYS_OPTION
def renew(folder: Path, days: int) -> None:
    """Sign all certificates of the cluster in DIR again.

    The keys stay, and so does the CA. Copy the certificates to their machines. Servers and clients use them within a
    few seconds, etcd after a restart.
    """
    with errors_in_a_sentence("secure renew"):
        certificates = _read_plan(folder).certificates
        for certificate in certificates:
            _sign(folder, certificate, days)
    click.echo(f"signed {len(certificates)} certificates in {folder} for {days} days")


@secure.command("add-client")
@_FOLDER_ARGUMENT
@click.argument("name")
@_DAYS_OPTION
def add_client(folder: Path, name: str, days: int) -> None:
    """Make a certificate and an account for one more client, NAME, of the cluster in DIR."""
    with errors_in_a_sentence("secure add-client"):
        check_account_name(name)
        plan_file = _read_plan(folder)
        certificate = Certificate(f"{name}/certificate.pem", f"{name}/key.pem", name)
        if (folder / name).exists() or name in {known.name for known in plan_file.certificates}:
            raise ConfigError(f"{folder / name} exists already, and nothing in it is overwritten: choose another name")
        secret = new_secret()
        for path, text in client_texts(plan_file.place, name, secret, plan_file.name_servers).items():
            _write_private(folder / path, text)
        _sign(folder, certificate, days)
        shutil.copyfile(_authority(folder, certificate.authority).certificate, folder / name / "ca.pem")
        plan_file.certificates.append(certificate)
        replace_secret_file(folder / PLAN_FILE, plan_file.text().encode())
    click.echo(
        f"{folder / name} has the files of the client. Add these lines to accounts.yml of each server:\n\n"
        f"{client_account(name, secret)}\nThey take effect within five seconds."
    )


def _write(folder: Path, cluster_plan: Plan, place: str, days: int) -> None:
    """Write the folder, completely or not at all. Raises: ConfigError, OSError."""
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{folder} exists already, and nothing in it is overwritten: name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))  # its mode is 0700
    plan_file = PlanFile(place, cluster_plan.name_servers, list(cluster_plan.certificates))
    try:
        for stem in cluster_plan.authorities:
            make_authority(_authority(temporary, stem), f"SparrowMQ {stem}", AUTHORITY_DAYS)
        for path, text in cluster_plan.texts.items():
            _write_private(temporary / path, text)
        for certificate in cluster_plan.certificates:
            _sign(temporary, certificate, days)
        for path, stem in cluster_plan.copies.items():
            shutil.copyfile(_authority(temporary, stem).certificate, temporary / path)
        _write_private(temporary / PLAN_FILE, plan_file.text())
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY), "w") as file:
        file.write(text)


def _sign(folder: Path, certificate: Certificate, days: int) -> None:
    files = CertificateFiles(folder / certificate.stem, folder / certificate.key)
    sign(files, certificate.name, tuple(certificate.hosts), _authority(folder, certificate.authority), days)


def _authority(folder: Path, stem: str) -> CertificateFiles:
    return CertificateFiles(folder / f"{stem}.pem", folder / f"{stem}.key")


def _read_plan(folder: Path) -> PlanFile:
    try:
        fields = json.loads((folder / PLAN_FILE).read_text())
        fields["certificates"] = [Certificate(**certificate) for certificate in fields["certificates"]]
        return PlanFile(**fields)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{folder} is no folder that `sparrowmq secure init` made: {PLAN_FILE} cannot be read ({error})"
        ) from error


def _next_steps(folder: Path, cluster_plan: Plan, clients: Sequence[str]) -> str:
    start_commands = "\n".join(f"    {line}" for line in cluster_plan.start_commands)
    return (
        f"{folder} has the files of the cluster. Copy the folder of each server to its machine, readable by the "
        f"server's user only.\n\nStart the servers in this order:\n{start_commands}\n\n"
        f"Look at the cluster:\n    . {folder}/{ADMINISTRATOR}/environment\n    sparrowmq cluster\n\n"
        f"Give each program its folder ({', '.join(clients)}). Keep the *.key files of {folder} itself away from all "
        "servers: with them, new certificates are made."
    )


# The plan: all files as texts, before any is written ----------------------------------------------------------------


@dataclass(frozen=True)
class ClusterOptions:
    """The size and place of a cluster, as the command line gives them."""

    place: str  # the folder where the servers will find their files
    data: str = ""  # the folder where they keep their data; "" for `place`
    hosts: Sequence[str] = ("127.0.0.1",)  # servers are distributed over them in turn
    name_servers: int = 1
    brokers: int = 1
    slaves: int = 0  # the slaves of each broker
    has_failover: bool = False  # the brokers are members of one group, whose master etcd knows
    etcd: int = 1
    clients: Sequence[str] = ("application",)
    namesrv_port: int = NAMESRV_PORT
    broker_port: int = BROKER_PORT
    etcd_port: int = ETCD_PORT

    def folder_of(self, server: Server) -> str:
        """Return the folder in which a server keeps its messages and state."""
        return f"{self.data or self.place}/{server.folder}"

    def check(self) -> None:
        """Raises: ConfigError, the wishes cannot be met."""
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise ConfigError(f"--host {host!r} is not an address: give an IP address or a host name")
        if self.has_failover and self.slaves:
            raise ConfigError("--slaves does not go with --failover: its members follow the one that etcd elects")
        for name in self.clients:
            check_account_name(name)
        servers = [*_name_servers(self), *_brokers(self), *_etcd(self)]
        names = [ADMINISTRATOR, *self.clients, *(server.folder for server in servers)]
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"--client {duplicates[0]}: the name is taken; choose another one")


@dataclass(frozen=True)
class Server:
    folder: str
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url_host(self) -> str:
        """The address where etcd listens, which must be an IP address."""
        if (address := _ip_address(self.host)) is None:
            return EVERYWHERE
        return f"[{self.host}]" if address.version == 6 else self.host


@dataclass(frozen=True)
class BrokerServer(Server):
    """A broker: a master, a slave, or a member of a group."""

    name: str = ""
    number: int = 0


@dataclass(frozen=True)
class Certificate:
    stem: str  # of its files below the folder of the cluster: STEM.pem and the key
    key: str
    name: str
    hosts: tuple[str, ...] = ()  # of a server; () for a client
    authority: str = AUTHORITY  # the stem of the CA


@dataclass(frozen=True)
class Plan:
    texts: Mapping[str, str]  # by the path below the folder of the cluster
    certificates: Sequence[Certificate]  # to sign, and the CAs that sign them
    copies: Mapping[str, str]  # copies of a CA's certificate, each with the stem of the CA
    authorities: Sequence[str]
    start_commands: Sequence[str]  # the commands that start the servers, in order
    name_servers: str  # their addresses


@dataclass
class _PlanBuilder:
    options: ClusterOptions
    texts: dict[str, str] = field(default_factory=dict)
    certificates: list[Certificate] = field(default_factory=list)
    copies: dict[str, str] = field(default_factory=dict)
    start_commands: list[str] = field(default_factory=list)

    def certify(self, folder: str, hosts: tuple[str, ...] = (), *, file: str = "", authority: str = AUTHORITY) -> None:
        prefix = f"{folder}/{file}"
        self.certificates.append(Certificate(f"{prefix}certificate.pem", f"{prefix}key.pem", folder, hosts, authority))
        self.copies[f"{prefix}ca.pem"] = authority


def make_plan(options: ClusterOptions) -> Plan:
    """Return all files of a cluster. Raises: ConfigError, the wishes cannot be met."""
    options.check()
    builder = _PlanBuilder(options)
    name_servers, etcd, brokers = _name_servers(options), _etcd(options), _brokers(options)
    client_secrets = {name: new_secret() for name in (ADMINISTRATOR, *options.clients)}
    accounts = _accounts(client_secrets, brokers)
    ha_secret = new_secret()
    addresses = ";".join(server.address for server in name_servers)
    for server in etcd:
        _add_etcd(builder, server, etcd)
    for server in name_servers:
        path = f"{server.folder}/namesrv.conf"
        builder.texts[path] = _namesrv_conf(options, server)
        builder.texts[f"{server.folder}/accounts.yml"] = accounts
        builder.certify(server.folder, (server.host,))
        builder.start_commands.append(f"mqnamesrv -c {options.place}/{path}")
    for broker in brokers:
        path = f"{broker.folder}/broker.conf"
        builder.texts[path] = _broker_conf(options, broker, addresses, ha_secret, etcd)
        builder.texts[f"{broker.folder}/accounts.yml"] = accounts
        builder.certify(broker.folder, (broker.host,))
        if etcd:
            builder.certify(broker.folder, file="etcd-", authority=ETCD_AUTHORITY)
        builder.start_commands.append(f"mqbroker -c {options.place}/{path}")
    for name, secret in client_secrets.items():
        builder.texts |= client_texts(options.place, name, secret, addresses)
        builder.certify(name)
    authorities = [AUTHORITY, ETCD_AUTHORITY] if etcd else [AUTHORITY]
    return Plan(builder.texts, builder.certificates, builder.copies, authorities, builder.start_commands, addresses)


def client_texts(place: str, name: str, secret: str, name_servers: str) -> dict[str, str]:
    """Return the files of a client, besides its certificate."""
    folder = f"{place}/{name}"
    variables = {
        "NAMESRV_ADDR": f"'{name_servers}'",
        "SPARROWMQ_TLS_CONFIG": f"'{folder}/tls.properties'",
        "ROCKETMQ_ACCESS_KEY": name,
        "ROCKETMQ_SECRET_KEY": secret,
    }
    return {
        f"{name}/tls.properties": "tls.enable=true\n" + _client_tls(folder),
        f"{name}/environment": "".join(f"export {key}={value}\n" for key, value in variables.items()),
    }


def client_account(name: str, secret: str) -> str:
    """Return the lines of accounts.yml for a client that may send and consume everywhere."""
    return (
        f"  - accessKey: {name}\n    secretKey: {secret}\n    certificate: {name}\n"
        "    defaultTopicPerm: PUB|SUB\n    defaultGroupPerm: SUB\n"
    )


def new_secret() -> str:
    return secrets.token_hex(_SECRET_BYTES)


def check_account_name(name: str) -> None:
    """Raises: ConfigError, it cannot be the name of a client and its account."""
    if not _NAME.fullmatch(name) or len(name) <= MAX_INVALID_KEY_CHARACTERS:
        raise ConfigError(
            f"{name!r} is not a valid account name: write more than {MAX_INVALID_KEY_CHARACTERS} letters, digits, _ "
            "or -"
        )


# Servers ------------------------------------------------------------------------------------------------------------


def _name_servers(options: ClusterOptions) -> list[Server]:
    return _servers_in_turn(options.hosts, "name-server", options.name_servers, options.namesrv_port)


def _etcd(options: ClusterOptions) -> list[Server]:
    count = options.etcd if options.has_failover else 0
    return _servers_in_turn(options.hosts, "etcd", count, options.etcd_port)


def _servers_in_turn(hosts: Sequence[str], name: str, count: int, first_port: int) -> list[Server]:
    return [
        Server(f"{name}-{number + 1}", hosts[number % len(hosts)], first_port + number // len(hosts) * _PORT_STEP)
        for number in range(count)
    ]


def _brokers(options: ClusterOptions) -> list[BrokerServer]:
    """A slave is on the host after that of its master."""
    ports = dict.fromkeys(options.hosts, options.broker_port)
    brokers = []
    for number in range(options.brokers):
        letter = _LETTERS[number % len(_LETTERS)] + str(number // len(_LETTERS) or "")
        name = "broker-a" if options.has_failover else f"broker-{letter}"
        for copy in range(options.slaves + 1):
            host = options.hosts[(number + copy) % len(options.hosts)]
            port, ports[host] = ports[host], ports[host] + _PORT_STEP
            broker_id = number + 1 if options.has_failover else copy
            folder = f"{name}-{broker_id}" if options.has_failover else f"{name}-slave-{copy}" if copy else name
            brokers.append(BrokerServer(folder, host, port, name, broker_id))
    return brokers


# Texts --------------------------------------------------------------------------------------------------------------


def _namesrv_conf(options: ClusterOptions, server: Server) -> str:
    settings = {
        "listenPort": str(server.port),
        "bindAddress": _bind_address(server.host),
        "kvConfigPath": f"{options.folder_of(server)}/kvConfig.json",
    }
    return _properties(settings) + _access_settings(f"{options.place}/{server.folder}")


def _broker_conf(
    options: ClusterOptions, server: BrokerServer, name_servers: str, ha_secret: str, etcd: Sequence[Server]
) -> str:
    folder = f"{options.place}/{server.folder}"
    is_slave = server.number > 0 and not etcd
    settings = {
        "brokerName": server.name,
        "brokerId": str(server.number),
        "brokerRole": "SLAVE" if is_slave else "SYNC_MASTER" if etcd else "ASYNC_MASTER",
        "namesrvAddr": name_servers,
        "brokerIP1": server.host,
        "bindAddress": _bind_address(server.host),
        "listenPort": str(server.port),
        "haListenPort": str(server.port + 1),
        "fastListenPort": "off",
        "storePathRootDir": f"{options.folder_of(server)}/store",
        "haSecret": ha_secret,
    }
    if etcd:
        settings |= {
            "enableControllerMode": "true",
            "etcdEndpoints": ";".join(endpoint.address for endpoint in etcd),
            "etcd.tls.enable": "true",
            "etcd.tls.trustCertPath": f"{folder}/etcd-ca.pem",
            "etcd.tls.certPath": f"{folder}/etcd-certificate.pem",
            "etcd.tls.keyPath": f"{folder}/etcd-key.pem",
        }
    return _properties(settings) + _access_settings(folder)


def _access_settings(folder: str) -> str:
    settings = {
        "aclEnable": "true",
        "aclFile": f"{folder}/accounts.yml",
        "tls.server.mode": "enforcing",
        "tls.server.certPath": f"{folder}/certificate.pem",
        "tls.server.keyPath": f"{folder}/key.pem",
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": f"{folder}/ca.pem",
    }
    return _properties(settings) + _client_tls(folder)


def _client_tls(folder: str) -> str:
    files = {"trustCertPath": "ca.pem", "certPath": "certificate.pem", "keyPath": "key.pem"}
    return _properties({f"tls.client.{key}": f"{folder}/{file}" for key, file in files.items()})


def _accounts(client_secrets: Mapping[str, str], brokers: Sequence[BrokerServer]) -> str:
    """Return the accounts of all servers; each may sign, or show its certificate."""
    lines = ["accounts:\n"]
    for name, secret in client_secrets.items():
        is_admin = name == ADMINISTRATOR
        lines.append(_account(name, secret, "admin") if is_admin else client_account(name, secret))
    for broker in brokers:
        lines += [_account(broker.folder, new_secret(), "broker"), f"    brokerNames: [{broker.name}]\n"]
    return "".join(lines)


def _account(name: str, secret: str, role: str) -> str:
    return f"  - accessKey: {name}\n    secretKey: {secret}\n    certificate: {name}\n    {role}: true\n"


def _add_etcd(builder: _PlanBuilder, server: Server, group: Sequence[Server]) -> None:
    folder = f"{builder.options.place}/{server.folder}"
    builder.certify(server.folder, (server.host,), authority=ETCD_AUTHORITY)
    peers = ",".join(f"{member.folder}=https://{_peer_server(member).address}" for member in group)
    files = f"  cert-file: {folder}/certificate.pem\n  key-file: {folder}/key.pem\n"
    security = f"{files}  client-cert-auth: true\n  trusted-ca-file: {folder}/ca.pem\n"
    path = f"{server.folder}/etcd.yml"
    builder.texts[path] = (
        f"name: {server.folder}\ndata-dir: {builder.options.folder_of(server)}/data\n"
        f"listen-client-urls: https://{server.url_host}:{server.port}\n"
        f"advertise-client-urls: https://{server.address}\n"
        f"listen-peer-urls: https://{server.url_host}:{_peer_server(server).port}\n"
        f"initial-advertise-peer-urls: https://{_peer_server(server).address}\n"
        f"initial-cluster: {peers}\ninitial-cluster-state: new\n"
        # Brokers use the gateway. It is on by etcd's flags, and off for etcd 3.4 with a file.
        "enable-grpc-gateway: true\n"
        f"client-transport-security:\n{security}peer-transport-security:\n{security}"
    )
    builder.start_commands.append(f"etcd --config-file {builder.options.place}/{path}")


def _peer_server(server: Server) -> Server:
    return Server(server.folder, server.host, server.port + 1)


def _bind_address(host: str) -> str:
    return str(_ip_address(host) or EVERYWHERE)  # a host with only a name listens on all its addresses


def _ip_address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _properties(values: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())


# The certificate authority -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CertificateFiles:
    """A certificate and its key, in PEM."""

    certificate: Path
    key: Path


def make_authority(files: CertificateFiles, name: str, days: int) -> None:
    """Make the key and the certificate of a CA. Raises: ConfigError, openssl is missing or fails."""
    _make_key(files.key)
    with TemporaryDirectory(prefix="sparrowmq-") as folder:
        config = _write_config(folder, _CONFIG)
        _openssl(
            *("req", "-x509", "-new", "-config", config, "-extensions", "authority", "-key", files.key),
            *("-subj", f"/CN={name}", "-days", days, "-set_serial", _serial(), "-out", files.certificate),
        )


def sign(files: CertificateFiles, name: str, hosts: tuple[str, ...], authority: CertificateFiles, days: int) -> None:
    """Make a certificate for a common name, and its key if there is none yet; a client has no hosts.

    Raises: ConfigError, openssl is missing or fails.
    """
    if not files.key.exists():
        _make_key(files.key)
    usage = "serverAuth, clientAuth" if hosts else "clientAuth"
    extensions = f"extendedKeyUsage = {usage}\n"
    if hosts:
        names = [f"IP:{address}" if (address := _ip_address(host)) else f"DNS:{host}" for host in hosts]
        extensions += f"subjectAltName = {', '.join(names)}\n"
    with TemporaryDirectory(prefix="sparrowmq-") as folder:
        config, request = _write_config(folder, _CONFIG + extensions), Path(folder, "request.pem")
        signed = Path(folder, "made.pem")
        _openssl(*("req", "-new", "-config", config, "-key", files.key, "-subj", f"/CN={name}", "-out", request))
        _openssl(
            *("x509", "-req", "-in", request, "-CA", authority.certificate, "-CAkey", authority.key),
            *("-set_serial", _serial(), "-days", days, "-extfile", config, "-extensions", "signed"),
            *("-out", signed),
        )
        content = signed.read_bytes()
    temporary = files.certificate.with_name(files.certificate.name + ".tmp")
    temporary.write_bytes(content)
    temporary.replace(files.certificate)


def _make_key(path: Path) -> None:
    path.touch(OWNER_ONLY, exist_ok=False)
    _openssl(
        "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt", "ec_param_enc:named_curve",
        "-out", path
    )  # fmt: skip
    path.chmod(OWNER_ONLY)


def _serial() -> str:
    return f"0x{secrets.randbits(127) | 1 << 126:x}"


def _write_config(folder: str, text: str) -> Path:
    path = Path(folder, "openssl.cnf")
    path.write_text(text)
    return path


def _openssl(*words: object) -> None:
    try:
        subprocess.run(
            ["openssl", *map(str, words)],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=OPENSSL_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        last_line = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ConfigError(f"openssl cannot make a certificate ({last_line or f'exit {error.returncode}'})") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"openssl cannot make a certificate ({error}); install the program openssl") from error
