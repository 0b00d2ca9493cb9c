"""The group of a job's workers, which runs collectives in an agreed order. A repeated sum has the same bits."""
