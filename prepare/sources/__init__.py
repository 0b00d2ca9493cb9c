"""The sources of data: each turns its input into samples and the files beside them."""
