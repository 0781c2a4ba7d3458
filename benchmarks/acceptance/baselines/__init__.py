"""Issue 6's measured tables: the baselines against vanilla, against each other, and against a single process."""
