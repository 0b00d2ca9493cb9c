"""The life cycle of a server. In a task job, a server claims an index, takes snapshots, and ends after the job.

- `options` contains the settings from the flags.
- `lease` renews the claim of an index in a thread, and detects the end of the job.
- `snapshots` takes snapshots, and registers each as the current snapshot.
- `recovery` resumes a server from a snapshot.
- `server_life` decides when the server's loop answers, takes snapshots and ends.
- `health` contains the health pages.
- `task_server` runs the whole life cycle, from the claim to the exit status.
"""
