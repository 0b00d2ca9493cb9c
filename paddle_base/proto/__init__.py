"""The legacy's protobuf messages (`make proto` makes the modules again after a change of the .proto files)."""
