"""The files of a closed cluster: for each server and client a folder with all that it needs.

    ca.pem, ca.key              the CA of servers and clients
    etcd-ca.pem, etcd-ca.key    the CA of etcd and its clients, the brokers: no other client may write there
    plan.json                   the certificates, for `renew` and `add-client`
    name-server-1/              namesrv.conf, accounts.yml, certificate.pem, key.pem, ca.pem
    broker-a/                   broker.conf and the same; with failover also those for etcd
    etcd-1/                     etcd.yml and the same
    administrator/, CLIENT/     tls.properties, environment (variables for a shell), certificate.pem, key.pem, ca.pem

This module makes texts and writes nothing.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.auth.accounts import LONGEST_TOO_SHORT
from sparrowmq.errors import ConfigError
from sparrowmq.remoting.listener import EVERYWHERE

ADMINISTRATOR: Final = "administrator"
AUTHORITY: Final = "ca"
ETCD_AUTHORITY: Final = "etcd-ca"
NAMESRV_PORT: Final = 9876
BROKER_PORT: Final = 10911
ETCD_PORT: Final = 2379
_APART: Final = 10  # between the ports of two servers of a kind on one host
_SECRET_BYTES: Final = 24
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?|::1")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Wishes:
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

    def demand_sense(self) -> None:
        """Raises: ConfigError, the wishes cannot be met."""
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise ConfigError(f"--host {host!r} is no address: give an IP address or a host name")
        if self.has_failover and self.slaves:
            raise ConfigError("--slaves does not go with --failover: its members follow the one that etcd elects")
        for name in self.clients:
            demand_name(name)
        taken = [ADMINISTRATOR, *self.clients, *(each.folder for each in _servers(self))]
        twice = sorted({name for name in taken if taken.count(name) > 1})
        if twice:
            raise ConfigError(f"--client {twice[0]}: the name is taken; choose another one")


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
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return EVERYWHERE
        return f"[{self.host}]" if ":" in self.host else self.host


@dataclass(frozen=True)
class BrokerServer(Server):
    """A broker: a master, a slave, or a member of a group."""

    name: str = ""
    number: int = 0


@dataclass(frozen=True)
class Certificate:
    """A certificate to sign."""

    stem: str  # of its files below the folder of the cluster: STEM.pem and the key
    key: str
    name: str
    hosts: tuple[str, ...] = ()  # of a server; () for a client
    authority: str = AUTHORITY  # the stem of the CA


@dataclass(frozen=True)
class Plan:
    """All files."""

    texts: Mapping[str, str]  # by the path below the folder of the cluster
    certificates: Sequence[Certificate]  # to sign, and the CAs that sign them
    copies: Mapping[str, str]  # copies of a CA's certificate, each with the stem of the CA
    authorities: Sequence[str]
    starts: Sequence[str]  # the commands that start the servers, in order
    name_servers: str  # their addresses


@dataclass
class _Making:
    wishes: Wishes
    texts: dict[str, str] = field(default_factory=dict)
    certificates: list[Certificate] = field(default_factory=list)
    copies: dict[str, str] = field(default_factory=dict)
    starts: list[str] = field(default_factory=list)

    def certify(self, folder: str, hosts: tuple[str, ...] = (), *, file: str = "", authority: str = AUTHORITY) -> None:
        prefix = f"{folder}/{file}"
        self.certificates.append(Certificate(f"{prefix}certificate.pem", f"{prefix}key.pem", folder, hosts, authority))
        self.copies[f"{prefix}ca.pem"] = authority


def plan(wishes: Wishes) -> Plan:
    """Return all files of a cluster. Raises: ConfigError, the wishes cannot be met."""
    wishes.demand_sense()
    making = _Making(wishes)
    name_servers, etcd, brokers = _name_servers(wishes), _etcd(wishes), _brokers(wishes)
    people = {name: new_secret() for name in (ADMINISTRATOR, *wishes.clients)}
    accounts = _accounts(people, brokers)
    ha_secret = new_secret()
    addresses = ";".join(each.address for each in name_servers)
    for each in etcd:
        _add_etcd(making, each, etcd)
    for each in name_servers:
        path = f"{each.folder}/namesrv.conf"
        making.texts[path] = _namesrv_conf(wishes, each)
        making.texts[f"{each.folder}/accounts.yml"] = accounts
        making.certify(each.folder, (each.host,))
        making.starts.append(f"mqnamesrv -c {wishes.place}/{path}")
    for each in brokers:
        path = f"{each.folder}/broker.conf"
        making.texts[path] = _broker_conf(wishes, each, addresses, ha_secret, etcd)
        making.texts[f"{each.folder}/accounts.yml"] = accounts
        making.certify(each.folder, (each.host,))
        if etcd:
            making.certify(each.folder, file="etcd-", authority=ETCD_AUTHORITY)
        making.starts.append(f"mqbroker -c {wishes.place}/{path}")
    for name, secret in people.items():
        making.texts |= client_texts(wishes.place, name, secret, addresses)
        making.certify(name)
    authorities = [AUTHORITY, ETCD_AUTHORITY] if etcd else [AUTHORITY]
    return Plan(making.texts, making.certificates, making.copies, authorities, making.starts, addresses)


def client_texts(place: str, name: str, secret: str, name_servers: str) -> dict[str, str]:
    """Return the files of a client, besides its certificate."""
    at = f"{place}/{name}"
    return {
        f"{name}/tls.properties": "tls.enable=true\n" + _client_tls(at),
        f"{name}/environment": _environment(at, name, secret, name_servers),
    }


def client_account(name: str, secret: str) -> str:
    """Return the lines of accounts.yml for a client that may send and consume everywhere."""
    return (
        f"  - accessKey: {name}\n    secretKey: {secret}\n    certificate: {name}\n"
        "    defaultTopicPerm: PUB|SUB\n    defaultGroupPerm: SUB\n"
    )


def new_secret() -> str:
    """Return a secret that cannot be guessed."""
    return secrets.token_hex(_SECRET_BYTES)


def demand_name(name: str) -> None:
    """Raises: ConfigError, it cannot be the name of a client and its account."""
    if not _NAME.fullmatch(name) or len(name) <= LONGEST_TOO_SHORT:
        raise ConfigError(
            f"{name!r} is no name of an account: it needs more than {LONGEST_TOO_SHORT} letters, digits, _ or -"
        )


# Servers ------------------------------------------------------------------------------------------------------------


def _servers(wishes: Wishes) -> list[Server]:
    return [*_name_servers(wishes), *_brokers(wishes), *_etcd(wishes)]


def _name_servers(wishes: Wishes) -> list[Server]:
    hosts = _in_turn(wishes, wishes.namesrv_port, wishes.name_servers)
    return [Server(f"name-server-{n}", *place) for n, place in enumerate(hosts, 1)]


def _etcd(wishes: Wishes) -> list[Server]:
    if not wishes.has_failover:
        return []
    hosts = _in_turn(wishes, wishes.etcd_port, wishes.etcd)
    return [Server(f"etcd-{n}", *place) for n, place in enumerate(hosts, 1)]


def _brokers(wishes: Wishes) -> list[BrokerServer]:
    """A slave is on the host after that of its master."""
    ports = dict.fromkeys(wishes.hosts, wishes.broker_port)
    found = []
    for number in range(wishes.brokers):
        letter = _LETTERS[number % len(_LETTERS)] + str(number // len(_LETTERS) or "")
        name = "broker-a" if wishes.has_failover else f"broker-{letter}"
        for copy in range(wishes.slaves + 1):
            host = wishes.hosts[(number + copy) % len(wishes.hosts)]
            port, ports[host] = ports[host], ports[host] + _APART
            own = number + 1 if wishes.has_failover else copy
            folder = f"{name}-{own}" if wishes.has_failover else f"{name}-slave-{copy}" if copy else name
            found.append(BrokerServer(folder, host, port, name, own))
    return found


def _in_turn(wishes: Wishes, first_port: int, count: int) -> Iterator[tuple[str, int]]:
    hosts = wishes.hosts
    for number in range(count):
        yield hosts[number % len(hosts)], first_port + number // len(hosts) * _APART


# Texts --------------------------------------------------------------------------------------------------------------


def _namesrv_conf(wishes: Wishes, server: Server) -> str:
    at = f"{wishes.place}/{server.folder}"
    own = {
        "listenPort": str(server.port),
        "bindAddress": _bind(server.host),
        "kvConfigPath": f"{wishes.folder_of(server)}/kvConfig.json",
    }
    return _properties(own) + _guard(at)


def _broker_conf(
    wishes: Wishes, server: BrokerServer, name_servers: str, ha_secret: str, etcd: Sequence[Server]
) -> str:
    at = f"{wishes.place}/{server.folder}"
    is_slave = server.number > 0 and not etcd
    own = {
        "brokerName": server.name,
        "brokerId": str(server.number),
        "brokerRole": "SLAVE" if is_slave else "SYNC_MASTER" if etcd else "ASYNC_MASTER",
        "namesrvAddr": name_servers,
        "brokerIP1": server.host,
        "bindAddress": _bind(server.host),
        "listenPort": str(server.port),
        "haListenPort": str(server.port + 1),
        "fastListenPort": "off",
        "storePathRootDir": f"{wishes.folder_of(server)}/store",
        "haSecret": ha_secret,
    }
    if etcd:
        own |= {
            "enableControllerMode": "true",
            "etcdEndpoints": ";".join(each.address for each in etcd),
            "etcd.tls.enable": "true",
            "etcd.tls.trustCertPath": f"{at}/etcd-ca.pem",
            "etcd.tls.certPath": f"{at}/etcd-certificate.pem",
            "etcd.tls.keyPath": f"{at}/etcd-key.pem",
        }
    return _properties(own) + _guard(at)


def _guard(at: str) -> str:
    server = {
        "aclEnable": "true",
        "aclFile": f"{at}/accounts.yml",
        "tls.server.mode": "enforcing",
        "tls.server.certPath": f"{at}/certificate.pem",
        "tls.server.keyPath": f"{at}/key.pem",
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": f"{at}/ca.pem",
    }
    return _properties(server) + _client_tls(at)


def _client_tls(at: str) -> str:
    return _properties(
        {
            "tls.client.trustCertPath": f"{at}/ca.pem",
            "tls.client.certPath": f"{at}/certificate.pem",
            "tls.client.keyPath": f"{at}/key.pem",
        }
    )


def _environment(at: str, name: str, secret: str, name_servers: str) -> str:
    values = {
        "NAMESRV_ADDR": f"'{name_servers}'",
        "SPARROWMQ_TLS_CONFIG": f"'{at}/tls.properties'",
        "ROCKETMQ_ACCESS_KEY": name,
        "ROCKETMQ_SECRET_KEY": secret,
    }
    return "".join(f"export {key}={value}\n" for key, value in values.items())


def _accounts(people: Mapping[str, str], brokers: Sequence[BrokerServer]) -> str:
    """The accounts of all servers. Each one may sign, or show its certificate."""
    lines = ["accounts:\n"]
    for name, secret in people.items():
        is_admin = name == ADMINISTRATOR
        lines.append(_account(name, secret, "admin") if is_admin else client_account(name, secret))
    for each in brokers:
        lines += [_account(each.folder, new_secret(), "broker"), f"    brokerNames: [{each.name}]\n"]
    return "".join(lines)


def _account(name: str, secret: str, role: str) -> str:
    return f"  - accessKey: {name}\n    secretKey: {secret}\n    certificate: {name}\n    {role}: true\n"


def _add_etcd(making: _Making, server: Server, group: Sequence[Server]) -> None:
    at = f"{making.wishes.place}/{server.folder}"
    making.certify(server.folder, (server.host,), authority=ETCD_AUTHORITY)
    peers = ",".join(f"{each.folder}=https://{_peer(each).address}" for each in group)
    files = f"  cert-file: {at}/certificate.pem\n  key-file: {at}/key.pem\n"
    security = f"{files}  client-cert-auth: true\n  trusted-ca-file: {at}/ca.pem\n"
    path = f"{server.folder}/etcd.yml"
    making.texts[path] = (
        f"name: {server.folder}\ndata-dir: {making.wishes.folder_of(server)}/data\n"
        f"listen-client-urls: https://{server.url_host}:{server.port}\n"
        f"advertise-client-urls: https://{server.address}\n"
        f"listen-peer-urls: https://{server.url_host}:{_peer(server).port}\n"
        f"initial-advertise-peer-urls: https://{_peer(server).address}\n"
        f"initial-cluster: {peers}\ninitial-cluster-state: new\n"
        # Brokers use the gateway. It is on by etcd's flags, and off for etcd 3.4 with a file.
        "enable-grpc-gateway: true\n"
        f"client-transport-security:\n{security}peer-transport-security:\n{security}"
    )
    making.starts.append(f"etcd --config-file {making.wishes.place}/{path}")


def _peer(server: Server) -> Server:
    return Server(server.folder, server.host, server.port + 1)


def _bind(host: str) -> str:
    """The address to listen on: that of the host, or each one if the host has only a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return EVERYWHERE


def _properties(values: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())
