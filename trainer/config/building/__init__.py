"""The base parts of the config language: the state of a parse, names, checks of arguments."""
