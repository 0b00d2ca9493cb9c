"""What the other packages stand on: the runtime, messages, registry, RecordIO, compiled loops, messages of a config."""
