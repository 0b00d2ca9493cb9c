"""HTML of the report: markup that escapes, tables, numbers as text."""
