"""The legacy's protobuf messages: ParameterConfig, ModelConfig, DataConfig and TrainerConfig (`make proto` regenerates the modules)."""
