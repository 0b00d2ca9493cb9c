"""The data provider under its old name."""

from trainer.data import *  # noqa: F403
