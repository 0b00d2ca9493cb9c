"""The rows of a table as numbers for a network, by the columns.json that `paddle prepare --data_source=csv` writes.

A number becomes its distance from the column's mean, in standard deviations. A column of words becomes one number for
each word, which is 1 for the word of the row. A missing value becomes 0, and a column of numbers with missing values
has a second number, which is 1 where the value is missing.
"""

import csv
import json

COLUMNS = "data/columns.json"
LARGEST = 3.4028235e38  # of a float32


class Table:
    """The columns of a table.

    Args: path: a columns.json with a label.  Raises: ValueError: the file has no label, or one of too many words.
    """

    def __init__(self, path=COLUMNS):
        with open(path, encoding="utf-8") as file:
            about = json.load(file)
        if not about.get("label"):
            raise ValueError(f"{path} names no label: run prepare with --csv_label=COLUMN")
        self.delimiter, self.columns = about["delimiter"], about["columns"]
        self.missing = {"", *about["missing_words"]}
        self.names = [one["name"] for one in self.columns]
        self.place = self.names.index(about["label"])
        self.label = self.columns[self.place]
        self.classes = None
        if about["task"] == "classes":
            if not self.label["values"]:
                raise ValueError(f"the label {about['label']!r} has more than 1,000 classes, or none; give another one")
            self.classes = sorted(self.label["values"])
        self.inputs = [n for n, one in enumerate(self.columns) if n != self.place and not one.get("skipped")]
        self.width = sum(map(self._width_of, self.inputs))
        if not self.width:
            raise ValueError(f"{path} has no columns to learn from, only a label and columns to skip")

    def _width_of(self, number):
        one = self.columns[number]
        return len(one["values"] or ()) if one["kind"] == "text" else 2 if one["missing"] else 1

    def is_missing(self, field):
        return field.strip() in self.missing

    def encode(self, fields):
        """Return the numbers of a row, whose length is `width`."""
        row = []
        for number in self.inputs:
            one, field = self.columns[number], fields[number]
            is_missing = self.is_missing(field)
            if one["kind"] == "text":
                row += [float(not is_missing and field == value) for value in sorted(one["values"] or ())]
            else:
                row.append(0.0 if is_missing else (float(field) - one["mean"]) / (one["std"] or 1))
                row += [float(is_missing)] if one["missing"] else []
        return row

    def encode_label(self, field):
        """Return the label's class, or its number in standard deviations; None if it is missing or no known class."""
        if self.is_missing(field):
            return None
        if self.classes is not None:
            return self.classes.index(field) if field in self.classes else None
        return [(float(field) - self.label["mean"]) / (self.label["std"] or 1)]

    def decode_label(self, value):
        """Return a predicted class by its name, or a predicted number in the unit of the label."""
        if self.classes is not None:
            return self.classes[int(value)]
        return f"{value * (self.label['std'] or 1) + self.label['mean']:.6g}"

    def read(self, path):
        """Yield the rows of a file that has the columns of the training in their order, without its header."""
        with open(path, newline="", encoding="utf-8-sig") as file:
            for fields in csv.reader(file, delimiter=self.delimiter):
                if fields and fields != self.names:
                    yield fields

    def read_new(self, path):
        """Yield the header and then the rows of a new table: (fields as they are, fields in the order of the training).

        The header may name the columns in any order, and may lack the label and the columns to skip. Without a header,
        the columns are those of the training.  Raises: ValueError: a row does not fit; the message names the line.
        """
        with open(path, newline="", encoding=find_encoding(path)) as file:
            rows, line = csv.reader(file, delimiter=self.delimiter), 1
            places = None
            for fields in rows:
                if fields and places is None:
                    header, places = self._find_places(fields)
                    yield header, None
                    if header is fields:
                        line = rows.line_num + 1
                        continue
                if fields:
                    yield fields, self._arrange(fields, places, line, len(header))
                line = rows.line_num + 1

    def _find_places(self, fields):
        """Return the header, and for each column of the training its place in a row of the new table, or None."""
        names = [field.strip() for field in fields]
        needed = [self.names[number] for number in self.inputs]
        if not set(names) & set(self.names):
            return self.names, list(range(len(self.names)))
        absent = [name for name in needed if name not in names]
        if absent:
            raise ValueError(f"line 1: the header has no {str(absent)[1:-1]}; the training had {str(needed)[1:-1]}")
        return fields, [names.index(name) if name in names else None for name in self.names]

    def _arrange(self, fields, places, line, count):
        if len(fields) != count:
            raise ValueError(
                f"line {line}: the row has {len(fields)} instead of {count} columns, with {self.delimiter!r} between "
                f"them; without a header the columns are {self.delimiter.join(self.names)}"
            )
        row = ["" if place is None else fields[place] for place in places]
        wanted = [*self.inputs, *([] if self.classes else [self.place])]
        for number in wanted:
            field = row[number]
            if self.columns[number]["kind"] == "number" and not self.is_missing(field) and not is_number(field):
                raise ValueError(
                    f"line {line}: the column {self.names[number]!r} has {field!r}, which is not a number; leave a "
                    "field empty if its number is unknown"
                )
        return row


def find_encoding(path):
    """Return the encoding of a file as `prepare` finds it: UTF-8, or Latin-1 if it is no UTF-8."""
    try:
        with open(path, encoding="utf-8") as file:
            while file.read(1 << 20):
                pass
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8-sig"


def is_number(field):
    try:
        # as `prepare` reads numbers; the comparison is false for nan
        return abs(float(field)) <= LARGEST and field.isascii() and "_" not in field
    except ValueError:
        return False
