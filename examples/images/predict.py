"""Predicts the class of each image: python predict.py MODEL IMAGES > predictions.csv.

MODEL is a pass directory. IMAGES is an image or a folder. The facts of the training are in images.json beside MODEL, or
in data/. If images are in sub-folders with the names of classes, stderr gets the share of right predictions.
"""

import csv
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from images import ABOUT, find_images, read_about, read_image

from paddle_base.runtime.errors import DataError, MissingInputError, PaddleError

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainer_config.py")


def main(model, place):
    about_path = find_about(model)
    about = read_about(about_path)
    paths = find_images(place) if os.path.isdir(place) else [place]
    if not paths:
        raise DataError(f"there are no images below {place}")
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "data"))
        shutil.copy(about_path, os.path.join(folder, ABOUT))
        pixels = np.array([read_image(path, about["size"]) for path in paths], np.uint8)
        np.savez(os.path.join(folder, "data/new.npz"), pixels=pixels)
        with open(os.path.join(folder, "data/new.list"), "w", encoding="utf-8") as file:
            file.write("data/new.npz\n")
        run_trainer(model, folder)
        with open(os.path.join(folder, "rank-00000"), encoding="utf-8") as lines:
            print_rows(about["classes"], paths, lines)


def find_about(model):
    beside = os.path.join(os.path.dirname(os.path.abspath(model)), os.path.basename(ABOUT))
    for path in (beside, ABOUT):
        if os.path.exists(path):
            return path
    raise MissingInputError(
        f"{beside} is missing; copy data/images.json of the training there, and name a pass-* as MODEL"
    )


def run_trainer(model, folder):
    command = [sys.executable, "-m", "paddle", "train", "--job=test", f"--config={CONFIG}"]
    command += ["--config_args=is_predict=1", f"--init_model_path={os.path.abspath(model)}", "--predict_output_dir=."]
    run = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode:
        sys.stderr.write(run.stdout)
        sys.exit(run.returncode)


def print_rows(classes, paths, lines):
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["image", "predicted", "probability"])
    right = known = 0
    for path, line in zip(paths, lines, strict=True):
        number, scores = (list(map(float, part.split())) for part in line.split(";")[:2])
        said = classes[int(number[0])]
        writer.writerow([path, said, f"{scores[int(number[0])]:.3f}"])
        true = os.path.basename(os.path.dirname(os.path.abspath(path)))
        known += true in classes
        right += true == said
    if known:
        print(f"{known} images in folders of classes: {right / known:.1%} right", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("python predict.py MODEL IMAGES > predictions.csv", file=sys.stderr)
        sys.exit(64)
    try:
        main(*sys.argv[1:])
    except PaddleError as error:
        print(f"predict.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
