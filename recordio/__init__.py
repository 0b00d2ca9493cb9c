"""RecordIO: files of records in chunks, as the original's Go library writes and reads them.

`errors`, `layout` and `compression` are pure. `index` reads headers only, `reading` records. `writing` writes a file,
`shards` several of them. `sources` makes records of text.
"""
