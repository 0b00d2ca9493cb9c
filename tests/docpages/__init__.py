"""The pages for users: their command blocks, their links, and their tables that are made from the code."""
