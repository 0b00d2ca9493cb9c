"""The pages for users: their command blocks, their links, and the tables in them that are made from the code."""
