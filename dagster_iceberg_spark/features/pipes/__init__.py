"""Jobs that run elsewhere: what a job must know, the resource that launches it, and the job's own side."""
