"""The HTML of the report: markup with escaped texts, tables, and numbers as text."""
