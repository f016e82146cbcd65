"""All conditions that servers can report, with their remedies; docs/operate/conditions.md has a section for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias


class Severity(Enum):
    """The time within which somebody has to act: at once, or a day. A notice is about settings, and raises no alert."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Kind:
    name: str  # as in metrics, alerts and the page of conditions
    severity: Severity
    remedy: str  # what an operator does about it; NAME, ADDRESS, STORE and CONF stand for those of the broker
    is_unready: bool = False  # whether /readyz says no while it lasts
    follows: tuple[str, ...] = ()  # the kinds of which each, at the same server, is its cause


# A function that returns what is wrong now; "" if nothing is.
Probe: TypeAlias = tuple[Kind, Callable[[], str]]

STORE_FAILED: Final = Kind(
    "store_failed",
    Severity.CRITICAL,
    "look for errors of the disk in the system's log (dmesg); then restart the broker, which checks its log first; "
    "replace the disk if it fails again. After `No space left on device`, first give the volume or the file below the"
    " disk more room, and wait some seconds until it has that. `findmnt -T` of the folder in the text shows the disk, "
    "and `losetup -l` the file below a loop device",
    is_unready=True,
)
DISK_FULL: Final = Kind(
    "disk_full",
    Severity.CRITICAL,
    "free some space on that disk: `df STORE` shows where it is mounted, and `du -xah MOUNT | sort -h | tail` what "
    "takes it. A program that fills it again has to stop. If most of it is the store's, `sparrowmq broker set ADDRESS"
    " fileReservedTime=HOURS` lets the broker keep less. If not the disk is full, but no file descriptor or memory is "
    "left, start the broker with more of that. Writes go on by themselves",
    is_unready=True,
)
DISK_NEARLY_FULL: Final = Kind(
    "disk_nearly_full",
    Severity.WARNING,
    "free some space on that disk, or give it more: `df` of the folder in the text shows where it is mounted, and `du "
    "-xah MOUNT | sort -h | tail` what takes it. If most of it is the store's, `sparrowmq broker set ADDRESS "
    "fileReservedTime=HOURS` lets the broker keep less",
)
DISK_HANGS: Final = Kind(
    "disk_hangs",
    Severity.CRITICAL,
    "look at the disk: `dmesg`, `iostat -x 1`. A frozen file system goes on after `fsfreeze -u MOUNT`; if the disk "
    "does not recover, stop the broker and use another one",
)
LOG_DAMAGED: Final = Kind(
    "log_damaged",
    Severity.CRITICAL,
    "start a slave, the master or another member of this broker: it repairs itself from one that the name servers or "
    "etcd know. Otherwise stop the broker and run `sparrowmq store repair STORE -c CONF --from HOST:PORT` with a "
    "broker that has the same log",
)
LOG_FENCED: Final = Kind(
    "log_fenced",
    Severity.WARNING,
    "if another broker has the messages (`sparrowmq cluster` shows slaves and members), stop this one and run "
    "`sparrowmq store repair STORE -c CONF --from HOST:PORT`; otherwise delete the file that the text names, which "
    "says that you have seen it",
)
LOG_CUT: Final = Kind(
    "log_cut",
    Severity.WARNING,
    "a slave or a backup may have these messages. Otherwise run, on the broker's machine, "
    "`sparrowmq store resend STORE/set-aside/*.lost --delete`: it shows what can be read, asks, sends the messages "
    "again that the cluster lacks, and deletes the files, which ends this",
)
FORKED_MESSAGES: Final = Kind(
    "forked_messages",
    Severity.WARNING,
    "run, on the broker's machine, `sparrowmq store resend STORE/set-aside/*.forked --delete`: it shows the messages, "
    "asks, sends those again that the cluster lacks, and deletes the files, which ends this",
)
INDEX_INCOMPLETE: Final = Kind(
    "index_incomplete",
    Severity.WARNING,
    "free some space for index files; the index is filled by itself then",
    follows=("disk_full",),
)
STATE_NOT_LOGGED: Final = Kind(
    "state_not_logged",
    Severity.CRITICAL,
    "free some space; until then a failover forgets the last changes of topics, groups and offsets",
    follows=("disk_full",),
)
STATE_NOT_SAVED: Final = Kind(
    "state_not_saved",
    Severity.WARNING,
    "see that the folder config of its store is there and has room, and that the broker's user may write to it",
)

DELIVERY_LATE: Final = Kind(
    "delivery_late",
    Severity.WARNING,
    "do what the text says; the messages wait on the disk, and are delivered by themselves then",
    follows=("store_failed", "disk_full", "disk_hangs"),
)
TRANSACTIONS_OPEN: Final = Kind(
    "transactions_open",
    Severity.WARNING,
    "start the producers of that group, or see in their logs why they do not answer checks; after transactionCheckMax "
    "checks a transaction ends by itself",
    follows=("store_failed", "disk_full", "disk_hangs"),
)

UNREGISTERED: Final = Kind(
    "unregistered",
    Severity.CRITICAL,
    "start the name servers, or correct namesrvAddr; with accounts, check the broker's own account",
    is_unready=True,
)
NAME_SERVER_AWAY: Final = Kind("name_server_away", Severity.WARNING, "start it again, or take it out of namesrvAddr")
NAME_TAKEN: Final = Kind(
    "name_taken",
    Severity.CRITICAL,
    "stop one of the two, as a rule the one that was started last: bootTimestamp in `sparrowmq broker stats ADDRESS`,"
    " and in that of the other address. Give it a brokerName of its own (a slave: a brokerId of its own), and start "
    "it again: only its store has the messages that it took, so let it run until they are consumed",
)
NO_SLAVE: Final = Kind(
    "no_slave",
    Severity.CRITICAL,
    "start a slave: sends are answered with SLAVE_NOT_AVAILABLE (11) until one follows",
    follows=("secret_missing",),
)
SLAVE_GONE: Final = Kind(
    "slave_gone",
    Severity.WARNING,
    "start the slave again; if it is gone for good, restart this broker, which forgets it then",
    follows=("no_slave",),
)
SLAVE_BEHIND: Final = Kind(
    "slave_behind",
    Severity.WARNING,
    "see that the slave runs: `sparrowmq cluster` shows the address and the lag of each. Look at its disk (iostat "
    "-x 1) and at the network; a new slave needs some time",
)
SECRET_MISSING: Final = Kind(
    "secret_missing",
    Severity.NOTICE,
    "if the broker is to have slaves, make a random secret by `openssl rand -hex 24`, set it as haSecret at the master "
    "and all its slaves, and restart them. If not, set haListenPort=off. Clients are served either way",
)
SECRET_SHORT: Final = Kind(
    "secret_short",
    Severity.WARNING,
    "make a random secret by `openssl rand -hex 24`, set it as haSecret at the master and all its slaves, and restart "
    "them together: those with another secret do not follow",
)
MASTER_NOT_FOLLOWED: Final = Kind(
    "master_not_followed",
    Severity.CRITICAL,
    "do what the text says: this slave or member copies nothing until then; docs/operate/replication.md has the cases",
    follows=("store_failed", "disk_full"),
)
NO_MASTER: Final = Kind(
    "no_master",
    Severity.CRITICAL,
    "if the text says that etcd fails, start etcd, or fix what the text says about it: no member is elected before. "
    "Otherwise start the members that the text names as in sync, with the addresses where they were last: they have "
    "all acknowledged messages. `sparrowmq cluster` shows what each member waits for; docs/operate/failover.md has the "
    "cases, also of a member that is lost",
)

DRAINED: Final = Kind(
    "drained",
    Severity.WARNING,
    "when it shall take messages again: with drained = true `sparrowmq broker undrain NAME`; with brokerPermission "
    "`sparrowmq broker set ADDRESS brokerPermission=6`. Producers come back within 30 s",
)
LOG_NOT_WRITTEN: Final = Kind(
    "log_not_written",
    Severity.WARNING,
    "see that its folder is there and has room, and that the server's user may write to it; meanwhile its lines go to"
    " stderr",
)
_RENEW: Final = (
    "renew it with `sparrowmq secure renew DIR`, DIR being the folder that `sparrowmq secure init` made, and copy it "
    "here; or sign a new one with your own CA. If the key does not fit, put back the certificate's own. Changed files "
    "are loaded within seconds, without a restart"
)
CERTIFICATE: Final = Kind("certificate", Severity.CRITICAL, _RENEW)
CLIENT_CERTIFICATE: Final = Kind("client_certificate", Severity.CRITICAL, _RENEW)
CERTIFICATES_NOT_REQUIRED: Final = Kind(
    "certificates_not_required",
    Severity.NOTICE,
    "to let in only clients with a certificate, set tls.server.need.client.auth=require, tls.server.mode=enforcing and "
    "tls.server.trustCertPath. Otherwise remove tls.server.authClient",
)

SETTINGS_NOT_SAVED: Final = Kind(
    "settings_not_saved",
    Severity.WARNING,
    "see that the settings file and its folder are there and have room, and that the server's user may write to both;"
    " `sparrowmq broker config ADDRESS` shows what a lost file had. It is tried again every few seconds",
)
ACCOUNTS_NOT_LOADED: Final = Kind(
    "accounts_not_loaded",
    Severity.WARNING,
    "correct the file that the text names; it is loaded within 5 s, without a restart",
)
ANY_BROKER_NAME: Final = Kind(
    "any_broker_name",
    Severity.WARNING,
    "give each broker an account of its own, and add `brokerNames: [NAME]` with the broker's name to the account, in "
    "the file of accounts of each name server. The file is loaded within 5 s, without a restart",
)
AUDIT_NOT_WRITTEN: Final = Kind(
    "audit_not_written",
    Severity.WARNING,
    "see that its folder is there and has room, and that the server's user may write to it; that is tried again all "
    "the time",
)
VALUES_NOT_SAVED: Final = Kind(
    "values_not_saved",
    Severity.WARNING,
    "let the name server's user write to kvConfigPath and its folder, and see that there is room; until then changes "
    "of values are refused, and brokers that die are not remembered",
)
PROCESS_PAUSED: Final = Kind(
    "process_paused",
    Severity.WARNING,
    "it runs again, and this ends a minute after the last pause. Look for swapping (vmstat 1), a small limit of CPU, "
    "and pauses of the virtual machine",
)
CLOCK_WRONG: Final = Kind(
    "clock_wrong",
    Severity.WARNING,
    "set the clocks of the servers by NTP (`chronyc makestep`), unless they are right now: a master that stored "
    "messages ahead of time follows a corrected clock after ten minutes",
)

CONNECTIONS_FULL: Final = Kind(
    "connections_full",
    Severity.CRITICAL,
    "stop clients that open many connections: `ss -tnp dst ADDRESS`, on their machine, shows which processes have "
    "some. Or start the server with a higher limit of open files (`ulimit -n`, LimitNOFILE of systemd)",
)
QUOTA_USED_UP: Final = Kind(
    "quota_used_up",
    Severity.WARNING,
    "let that client do less, or raise its quota: `sparrowmq broker config ADDRESS quotas` shows all rules, and "
    '`sparrowmq broker set ADDRESS "quotas=RULES"` replaces them all',
)
DENIALS: Final = Kind(
    "denials",
    Severity.WARNING,
    "find the client by its address and by what it asks for, which the log of denials has: `tail DENIED`. Give it "
    "the right keys, or its account the permission: `sparrowmq acl list --broker NAME`, `sparrowmq acl set --help`. "
    "With authenticationEnabled=true these are `sparrowmq user list` and `sparrowmq user allow --help`. Close the port "
    "to it if it is a stranger",
)
USERS_NOT_READ: Final = Kind(
    "users_not_read",
    Severity.WARNING,
    "start that broker, or see why it refuses: the account of mqproxy must be a Super user of each broker, and the "
    "broker needs authenticationEnabled=true",
)
TRANSACTIONS_NOT_ASKED: Final = Kind(
    "transactions_not_asked",
    Severity.WARNING,
    "give the clients accounts, each for at most 500 topics, or spread the clients over several mqproxy",
)

KINDS: Final = tuple(each for each in tuple(globals().values()) if isinstance(each, Kind))
