"""The data of the oldest configs: files of fixed formats instead of user code, and several sources at once."""
