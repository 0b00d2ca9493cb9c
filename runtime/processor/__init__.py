"""The processors of this machine: threads of a program and of its linear algebra library."""
