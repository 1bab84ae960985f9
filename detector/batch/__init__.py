"""Several traces at once: in processes or on a cluster, with a checkpoint for each."""
