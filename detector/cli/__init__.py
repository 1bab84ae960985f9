"""What the commands share: their traces, their output, their exit codes."""
