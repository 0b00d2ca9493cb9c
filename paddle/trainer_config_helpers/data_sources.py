"""Declaration of data providers; define_py_data_sources is reachable here and not exported, as in the legacy."""

from trainer.config.data_sources import define_py_data_sources as define_py_data_sources
from trainer.config.language import exports

__all__, __getattr__ = exports("data_sources")
