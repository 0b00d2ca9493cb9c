"""Who takes part in a job: processes in slots, what each generation ends with, and what becomes of the next one."""
