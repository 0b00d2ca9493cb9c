"""The processor of this machine: threads of a program, and those of its linear algebra."""
