"""Two reports of one program: what changed, and which findings are the same."""
