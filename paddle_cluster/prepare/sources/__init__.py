"""The sources of data. Each source converts its input to samples and to further files."""

from __future__ import annotations

from collections.abc import Mapping

from paddle_cluster.prepare.dataset import Source
from paddle_cluster.prepare.sources.csv_source import CSV
from paddle_cluster.prepare.sources.digits import DIGITS
from paddle_cluster.prepare.sources.movielens import MOVIELENS
from paddle_cluster.prepare.sources.synthetic import SYNTHETIC
from paddle_cluster.prepare.sources.text import QUICK_START

SOURCES: Mapping[str, Source] = {one.name: one for one in (DIGITS, QUICK_START, MOVIELENS, CSV, SYNTHETIC)}
