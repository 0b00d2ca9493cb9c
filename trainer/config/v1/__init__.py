"""The v1 form of the oldest configurations: Layer(type=...), Settings(...), TrainData(...)."""
