"""The benchmark builder: programs that record, make and check labeled traces.

Imports ``detector``, never the reverse; not part of the wheel. Run from a checkout.
"""
