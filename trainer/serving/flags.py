"""The table of the flags of `paddle serve`."""

from __future__ import annotations

from paddle_base.runtime.command import format_flags
from paddle_base.runtime.gflags import Flag, Status, index_flags

_S = Status.SUPPORTED

FLAGS = index_flags(
    Flag("help", False, _S, "print this help and exit"),
    Flag("model", "", _S, "tar file of parameters (to_tar, save_parameter_to_tar), or file of paddle merge_model"),
    Flag("topology", "", _S, "network of a tar file: what Topology.serialize_for_inference wrote"),
    Flag("input_types", "", _S, "types of a merged model's data: name:integer_value_sequence,...; else dense_vector"),
    Flag("field", "value", _S, "fields of each output in an answer: value, id, prob or several, such as prob,id"),
    Flag("port", 8000, _S, "port of the service and its pages; 0: any free port, which the log names", 0, 65535),
    Flag("nics", "127.0.0.1", _S, "interface name, label or IPv4 address to listen on; empty: all addresses"),
    Flag("batch_size", 32, _S, "maximum number of samples of a batch, and of a request", 1, 1 << 16),
    Flag("batch_wait_ms", 0.0, _S, "milliseconds that a batch waits for further requests after its first", 0, 10000),
    Flag("max_requests", 128, _S, "maximum number of requests at the same time; others get the status 503", 1, 4096),
    Flag("max_body_bytes", 1 << 20, _S, "maximum bytes of a request; larger ones get the status 413", 1, 1 << 30),
    Flag("max_values", 1 << 16, _S, "maximum numbers and ids of a request, and of several in a batch", 1, 1 << 28),
    Flag("request_timeout", "10s", _S, "time after which a request that waits gets the status 503"),
    Flag("log_json", "", _S, "file to which log lines are also appended as JSON; empty = no such file"),
)  # fmt: skip


def format_help() -> str:
    """Return the manual of the command."""
    lines = [
        "usage: paddle serve --model=inference.tar --topology=T [--flag=value ...]",
        "       paddle serve --model=merged.paddle [--input_types=word:integer_value_sequence] [--flag=value ...]",
        "",
        "Answers POST / with the outputs of a network. The body is a sample, {data layer: value, ...}, or a list of",
        "samples, as JSON. /healthz, /readyz and /metrics are on the same port. SIGTERM ends the program, when the",
        "requests that have arrived are answered.",
        "",
        *format_flags(FLAGS),
    ]
    return "\n".join(lines) + "\n"
