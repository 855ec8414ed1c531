"""Downloads: data sets as archives (`captioning download`), and captioners named by an
address.
"""
