"""The instrument that speed is steered by: `python -m captioning.benchmark`.

Every figure comes with a naive variant measured in turn with it, with the share of what this machine can do at most,
and with the peak memory of a process that does nothing else.
"""
