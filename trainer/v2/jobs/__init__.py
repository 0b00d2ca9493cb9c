"""Programs as trainers of a job: its parameter servers, and the tasks of its master."""
