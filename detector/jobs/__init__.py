"""Several ranks as one job: matching, clocks, waiting and transfer, stragglers, volume."""
