"""Gives the rows of a table to the network. In prediction the rows keep their order and need no label."""

from table import Table

from paddle.trainer.PyDataProvider2 import *


def read_columns(settings, predict, **kwargs):
    table = settings.table = Table()
    label = dense_vector(1) if table.classes is None else integer_value(len(table.classes))
    settings.input_types = {"row": dense_vector(table.width), **({} if predict else {"label": label})}


@provider(init_hook=read_columns, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, path):
    for fields in settings.table.read(path):
        label = settings.table.encode_label(fields[settings.table.place])
        if label is not None:
            yield {"row": settings.table.encode(fields), "label": label}


@provider(init_hook=read_columns, should_shuffle=False)
def process_predict(settings, path):
    for fields in settings.table.read(path):
        yield {"row": settings.table.encode(fields)}
