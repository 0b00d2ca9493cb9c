"""Functions that declare data providers. As in v0.10, `__all__` does not contain the two functions below."""

from trainer.config.all_names import exports
from trainer.config.data_sources import define_py_data_source as define_py_data_source
from trainer.config.data_sources import define_py_data_sources as define_py_data_sources

__all__, __getattr__ = exports("data_sources")
