"""Predicts the label of each row of a table: python predict.py MODEL TABLE > predictions.csv.

MODEL is a pass directory. The columns of the training are in columns.json beside this directory, or in data/. If rows
have a label, stderr gets measures: the root of the mean squared error, or precision and recall of each class.
"""

import csv
import math
import os
import shutil
import subprocess
import sys
import tempfile

from table import COLUMNS, Table

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainer_config.py")


def main(model, path):
    columns = find_columns(model)
    table = Table(columns)
    with tempfile.TemporaryDirectory() as folder:
        write_rows(table, path, folder)
        shutil.copy(columns, os.path.join(folder, COLUMNS))
        command = [sys.executable, "-m", "paddle", "train", "--job=test", f"--config={CONFIG}"]
        command += ["--config_args=is_predict=1", f"--init_model_path={os.path.abspath(model)}"]
        command += ["--predict_output_dir=."]
        run = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode:
            sys.stderr.write(run.stdout)
            sys.exit(run.returncode)
        with open(os.path.join(folder, "rank-00000"), encoding="utf-8") as lines:
            print_rows(table, path, lines)


def find_columns(model):
    beside = os.path.join(os.path.dirname(os.path.abspath(model)), os.path.basename(COLUMNS))
    for path in (beside, COLUMNS):
        if os.path.exists(path):
            return path
    fail(f"{beside} is missing; copy data/columns.json of the training there, and name a pass-* as MODEL", 66)


def fail(message, status):
    print(message, file=sys.stderr)
    sys.exit(status)


def write_rows(table, path, folder):
    """Check the new table, and write its rows in the order of the training. Raises: ValueError: a row does not fit."""
    os.mkdir(os.path.join(folder, "data"))
    with open(os.path.join(folder, "data/new.csv"), "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=table.delimiter, lineterminator="\n")
        count = sum(writer.writerow(row) > 0 for _, row in table.read_new(path) if row is not None)
    if not count:
        raise ValueError("the table has no rows")
    with open(os.path.join(folder, "data/new.list"), "w", encoding="utf-8") as file:
        file.write("data/new.csv\n")


def print_rows(table, path, lines):
    """Print the rows with their predictions, and then the measures."""
    writer = csv.writer(sys.stdout, delimiter=table.delimiter, lineterminator="\n")
    pairs = []
    for fields, row in table.read_new(path):
        if row is None:
            writer.writerow([*fields, "predicted", *([] if table.classes is None else ["probability"])])
            continue
        value, *scores = (list(map(float, part.split())) for part in next(lines).split(";") if part.strip())
        said = table.decode_label(value[0])
        writer.writerow([*fields, said, *(f"{one[int(value[0])]:.3f}" for one in scores)])
        if not table.is_missing(row[table.place]):
            pairs.append((row[table.place], said))
    if pairs:
        print("\n".join(measure(table, pairs)), file=sys.stderr)


def measure(table, pairs):
    """Return lines about the predictions of rows with a label. Args: pairs: (label, prediction) of each row."""
    if table.classes is None:
        error = math.sqrt(sum((float(true) - float(said)) ** 2 for true, said in pairs) / len(pairs))
        alone = math.sqrt(sum((float(true) - table.label["mean"]) ** 2 for true, _ in pairs) / len(pairs))
        return [f"{len(pairs)} rows: RMSE {error:.4g}; the mean of the training alone has {alone:.4g}"]
    right = sum(true == said for true, said in pairs)
    lines = [f"{len(pairs)} rows: {right / len(pairs):.1%} right"]
    for name in table.classes:
        true, said = (sum(pair[side] == name for pair in pairs) for side in (0, 1))
        hit = sum(pair == (name, name) for pair in pairs)
        shown = [f"{hit / count:.3f}" if count else "-" for count in (said, true)]
        lines.append(f"{name}: precision {shown[0]}, recall {shown[1]}, {true} rows")
    return lines


if __name__ == "__main__":
    if len(sys.argv) != 3:
        fail("python predict.py MODEL TABLE > predictions.csv", 64)
    try:
        main(*sys.argv[1:])
    except FileNotFoundError as error:
        fail(f"there is no file {error.filename}; correct its name", 66)
    except (OSError, ValueError, csv.Error) as error:
        fail(f"{sys.argv[2]}: {error}", 65)
