"""docs/security.md and docs/security-tables.md: every limit that they name is the limit of the code."""

from docpages.blocks import ROOT

import paddle_cluster.launcher.control.sides
from paddle_base.columnar import footer, tables
from paddle_base.messages import envelope, gate, server_core, zmtp
from paddle_base.runtime import durable_files, environment, rate_limit
from paddle_base.runtime.kubernetes import account, answers, client
from paddle_base.runtime.kubernetes import text as api_text
from paddle_base.runtime.network import bodies, front, open_files, pages
from paddle_cluster.elastic import http_server, worker
from paddle_cluster.elastic.collectives import joining, peers
from paddle_cluster.elastic.keyvalue import freshness
from paddle_cluster.launcher import failures, status
from paddle_cluster.launcher import text as launcher_text
from paddle_cluster.launcher.cluster import kubernetes
from paddle_cluster.launcher.programs import progress_lines
from paddle_cluster.master import protocol as master_protocol
from paddle_cluster.prepare.input import archive, packed, tar
from pserver.server import complaints, listener
from pserver.wire import authentication, notes, protocol
from trainer.data import foreign_config, plain_pickle
from trainer.serving import service
from trainer.telemetry import follow

KIB, MIB = 1 << 10, 1 << 20
GATE = gate.GateLimits()
# what stands in the page, with the limits of the code in it
SECURITY = [
    f"four records of {authentication.RECORD_BYTES} bytes",
    f"sends {authentication.NONCE_BYTES} random bytes",
    f"carries {protocol._TAG_BYTES} bytes of BLAKE2b",
    f"is logged at most once in {rate_limit.PROBLEM_LINE_S:.0f} s",
    f"reads up to {plain_pickle.MOST_BYTES // MIB} MiB, {plain_pickle.MOST_VALUES:,} values and "
    f"{plain_pickle.MOST_DEPTH} levels",
    f"this user can read, up to {foreign_config.MOST_LIST_BYTES // MIB} MiB",
    f"one word of at most {account.TOKEN_LIMIT // KIB} KiB",
    f"one line of at most {api_text.TEXT_LIMIT:,} characters",
    f"is JSON of at most {envelope.MAX_BYTES // MIB} MiB",
    f"at most {GATE.unauthenticated} connections at a time",
    f"with {gate.FILES_OF_A_CONNECTION} file descriptors each",
    f"is closed after {GATE.handshake:.0f} s",
    f"up to {zmtp.HANDSHAKE_BYTES // KIB} KiB of ZMTP commands",
    f"{open_files.SPARE_FILES} descriptors stay free",
    f"one frame of {envelope.MAX_BYTES // MIB} MiB at a time, {server_core.MOST_OPEN} requests without an answer",
    f"one of {master_protocol.MOST_MEMBERS:,} members",
    f"pieces of at most {packed.PIECE // MIB} MiB",
]
TABLE_BYTES = tables.MOST_BYTES // MIB
UNREAD = f"{listener.MAX_UNSENT:,}; then the server stops reading"
DRIVER, WORKER = http_server.LIMITS, worker.LIMITS
SERVED, HEADS = service.RequestLimits(), front.FrontLimits()
TABLES = [
    f"pyarrow decodes it**: {TABLE_BYTES} MiB for the largest page of each column",
    f"lists of a column of {TABLE_BYTES} MiB, or {tables.MOST_GAIN} times their bytes in the file; "
    f"{tables.MOST_FOOTER // MIB} MiB of metadata, {footer.SCHEMA_DEPTH} levels of a schema",
    f"levels of a schema, {tables.COLUMNS:,} columns",
    f"`paddle serve`**: {SERVED.requests} at a time, each of {SERVED.body_bytes // MIB} MiB, {SERVED.values:,} values, "
    f"{service.DEPTH} levels and {SERVED.samples} samples",
    f"with {bodies.REQUEST_S:.0f} s to arrive, of which {bodies.BODY_S:.0f} s without a byte. "
    f"{HEADS.unproven} connections may have an incomplete head, "
    f"of {HEADS.head_bytes // KIB} KiB and for {HEADS.head_s:.0f} s",
    f"unauthenticated peer**: {2 * authentication.RECORD_BYTES}, of which {authentication.RECORD_BYTES} are kept",
    f"that have not joined**: {listener.MAX_UNAUTHENTICATED} of each kind",
    f"and for joining**: {listener.ADMISSION_TIMEOUT:.0f} s each",
    f"a note of {listener.UNJOINED_NOTE_BYTES // KIB} KiB, and no array",
    f"{protocol.MAX_NOTE_BYTES // MIB} MiB for the four kinds",
    f"{protocol.SMALL_NOTE_BYTES // KIB} KiB for others",
    f"{notes.MAX_DEPTH} levels (28 in",
    f"{notes.MAX_VALUES:,} values, {notes.MAX_INTEGER.bit_length()} bits",
    f"of a trainer**: {protocol.MAX_PAYLOAD_BYTES // MIB} MiB",
    f"leave unread**: {UNREAD}",
    f"has not used yet**: {peers.MAX_AHEAD_BYTES // MIB} MiB",
    f"{peers.MAX_AHEAD:,} frames",
    f"one line of each of {complaints.MAX_KINDS} kinds in {rate_limit.PROBLEM_LINE_S:.0f} s",
    f"secret's file**: {environment.MAX_SECRET_BYTES // KIB} KiB",
    f"and `/metrics`**: {pages.MOST_CALLERS} at a time",
    f"limits of {pages.MOST_HEAD_BYTES // KIB} KiB and {pages.PATIENCE_S:.0f} s for a request, and of "
    f"{pages.ANSWERS_PER_SECOND} answers a second",
    f"server, unpacked**: {client.ANSWER_LIMIT // MIB} MiB, {launcher_text.VALUES_LIMIT // 10**6} million values",
    f"{kubernetes.PAGES_LIMIT:,} pages, and together {client.ANSWER_LIMIT // MIB} MiB plus "
    f"{kubernetes.POD_LIMIT // KIB} KiB for each pod",
    f"{answers.REQUEST_TIMEOUT_S:.0f} s to connect",
    f"`Retry-After`**: {answers.RETRY_AFTER_LIMIT_S:.0f} s",
    f"`prepared.json`**: {durable_files.MOST_TEXT_BYTES // MIB} MiB",
    f"`error.json`**: {failures.ERROR_LIMIT // MIB} MiB",
    f"at most {launcher_text.DEPTH_LIMIT} levels",
    f"of kubectl**: {status.ANSWER_LIMIT // MIB} MiB, {status.KUBECTL_LIMIT_S:.0f} s",
    f"a program of ENTRY prints**: {progress_lines.LONGEST:,} bytes, {follow.MOST_MEASURES} measures",
    f"at most {open_files.MOST_OWN_FILES}, is for its own files",
    f"A limit below {open_files.LEAST_FILES} ends it",
    f"| master | {master_protocol.MOST_MEMBERS:,} | {master_protocol.MOST_MEMBERS:,} | {gate.FILES_OF_A_CONNECTION} |",
    f"twice the pods, at least {paddle_cluster.launcher.control.sides.LEAST_PEERS} |",
    f"| pserver | {listener.MAX_UNAUTHENTICATED} | {listener.MAX_UNJOINED}, and the trainers | 1 |",
    f"| {DRIVER.unproven}, of one address {DRIVER.of_address} | {DRIVER.proven:,} | 1 |",
    f"| {WORKER.unproven}, of one address {WORKER.of_address} | {WORKER.proven} | 1 |",
    f"group forms | {joining.MAX_UNPROVEN} | the ranks | 1 |",
    f"less than {open_files.SPARE_FILES} descriptors free",
    f"up to {freshness.WINDOW:,} requests may overtake",
]


def missing(page: str, promises: list[str]) -> list[str]:
    text = " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())
    return [one for one in promises if one not in text]


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    assert missing("security.md", SECURITY) == []


def test_the_limits_of_the_tables_are_those_of_the_code() -> None:
    assert missing("security-tables.md", TABLES) == []
    assert len(protocol.LARGE_NOTES) == 4  # "the four kinds"
    assert archive.CHUNK == tar.PIECE == packed.PIECE  # "unpacked in pieces of at most 1 MiB"
