"""The v1 form of configs, in which the oldest are written: Layer(type=...), Settings(...), TrainData(...)."""
