"""The programs that are recorded: PyTorch training and inference, with faults to switch on.

Every program has random weights and made-up data; nothing is downloaded.
"""
