"""Tables in Parquet and Arrow files, read in batches of rows with bounded memory.

`tables.open_table` opens a file of either format. A file may come from anywhere: before pyarrow decodes a part of it,
`pages` (Parquet) or `messages` (Arrow) reads how large this part becomes, and a part that is too large is refused.
pyarrow is an extra, and is imported when the first table is opened (`package`).
"""
