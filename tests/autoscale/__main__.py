"""PYTHONPATH=tests python -m autoscale: both cases on the model, without and with the autoscaler, and their figures."""

import sys

from autoscale.cases import play
from autoscale.figures import summarise

for case in (1, 2):
    for elastic in (False, True):
        record = play(case, elastic=elastic)
        print(f"case {case}, autoscaler {'ON' if elastic else 'OFF'}")
        for name, figure in summarise(record).items():
            print(f"    {name}: {figure}")
        if "-v" in sys.argv and elastic:
            for change in record.changes:
                print("      ", *change)
