"""RecordIO: files of records in chunks, in the format of the RecordIO library for Go that PaddlePaddle used.

`errors`, `layout` and `compression` do no input or output. `index` reads only headers, and `reading` reads
records. `writing` writes one file, and `shards` writes several files. `sources` makes records from text.
"""
