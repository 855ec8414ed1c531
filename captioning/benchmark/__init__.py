"""Speed on this machine, next to naive variants and the peak of the hardware: `python -m
captioning.benchmark`.
"""
