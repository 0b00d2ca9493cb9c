"""Make the HTML of the report: elements with escaped texts, tables, and numbers as text."""
