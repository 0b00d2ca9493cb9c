"""The files in which a run tells about itself: their formats, for those that write and read them."""
