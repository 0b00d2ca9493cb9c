"""`paddle.plot.Ploter`: curves of costs, drawn in a notebook or into a file."""

from __future__ import annotations

import os
from typing import Any


class PlotData:
    """A curve: its steps and values."""

    def __init__(self) -> None:
        self.step: list[Any] = []
        self.value: list[Any] = []

    def append(self, step: Any, value: Any) -> None:
        """Add a point."""
        self.step.append(step)
        self.value.append(value)

    def reset(self) -> None:
        """Remove all points."""
        self.step, self.value = [], []


class Ploter:
    """Curves by their titles. With the variable DISABLE_PLOT=True nothing is drawn."""

    def __init__(self, *args: str) -> None:
        self.__args__ = args
        self.__plot_data__ = {title: PlotData() for title in args}
        self.__disable_plot__ = os.environ.get("DISABLE_PLOT")

    def append(self, title: str, step: Any, value: Any) -> None:
        """Add a point to a curve."""
        assert isinstance(title, str), f"the title of a curve is a text, not {title!r}"
        assert title in self.__plot_data__, f"there is no curve {title!r}; there are {', '.join(self.__args__)}"
        self.__plot_data__[title].append(step, value)

    def plot(self, path: str | None = None) -> None:
        """Draw the curves into the output of the notebook's cell, or into a file.

        Raises: ModuleNotFoundError: matplotlib is missing, or without a path IPython.
        """
        if self.__disable_plot__ == "True":
            return
        from matplotlib import pyplot  # a program that draws nothing needs neither

        titles = [title for title in self.__args__ if self.__plot_data__[title].step]
        for title in titles:
            curve = self.__plot_data__[title]
            pyplot.plot(curve.step, curve.value)
        pyplot.legend(titles, loc="upper left")
        if path is None:
            from IPython import display as untyped

            display: Any = untyped
            display.clear_output(wait=True)
            display.display(pyplot.gcf())
        else:
            pyplot.savefig(path)
        pyplot.gcf().clear()

    def reset(self) -> None:
        """Remove all points of all curves."""
        for curve in self.__plot_data__.values():
            curve.reset()
