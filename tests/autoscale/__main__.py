"""Both cases on the model, without and with the autoscaler, and their figures.

PYTHONPATH=tests python -m autoscale [-v] [--columns DIRECTORY]; the second writes the columns of 2017, a file a run.
"""

import sys
from pathlib import Path

from autoscale.cases import play
from autoscale.figures import summarise

for case in (1, 2):
    for elastic in (False, True):
        record = play(case, elastic=elastic)
        if "--columns" in sys.argv:
            name = f"case{case}_{'ON' if elastic else 'OFF'}.log"
            lines = "".join(f"{line}\n" for line in record.columns())
            (Path(sys.argv[sys.argv.index("--columns") + 1]) / name).write_text(lines)
        print(f"case {case}, autoscaler {'ON' if elastic else 'OFF'}")
        for name, figure in summarise(record).items():
            print(f"    {name}: {figure}")
        if "-v" in sys.argv and elastic:
            for change in record.changes:
                print("      ", *change)
