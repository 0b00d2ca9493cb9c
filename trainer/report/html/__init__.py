"""HTML of the report: markup that escapes texts, tables, and numbers as text."""
