"""The raw form (v1) of the config language, for the oldest configurations: Layer(type=...), Settings(...) and so on."""
