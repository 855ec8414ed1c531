"""Downloads: data sets as archives (`python -m captioning.download`), and captioners named by an
address.
"""
