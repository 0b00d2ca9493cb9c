"""The use of this machine's processors by the threads of a program and of its linear algebra library."""
