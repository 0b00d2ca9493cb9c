"""Files behind addresses: a listing, a reader, downloads and uploads for s3://, gs://, az://, https:// and plain paths.

`addresses` parses an address. `stores` opens the store of an address: an object store behind fsspec, a server of https,
or the file system. `transfer` copies files with retries, `reader` reads a part of a file at a time, and `failures`
decides which errors are final. Only `fsspec` imports the library, which is an extra.
"""
