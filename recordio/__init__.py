"""RecordIO: files of records in chunks, in the format of the RecordIO library for Go that PaddlePaddle used.

`errors`, `layout` and `compression` do no input or output. `index` reads only headers, `reading` reads records.
`writing` writes one file, `shards` writes several. `sources` makes records from text.
"""
