"""The data of the oldest configs: files of fixed formats, which need no user code, and several sources at once."""
