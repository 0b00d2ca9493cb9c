"""RecordIO: files of records in chunks, in the format of the original's Go library.

`errors`, `layout` and `compression` are pure. `index` reads only headers, `reading` reads records. `writing` writes one
file, `shards` writes several. `sources` makes records from text.
"""
