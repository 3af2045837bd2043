"""Predict the accuracy of a cube from formulas, and choose the best sizes. Does not depend on any detector.

In: the expected flows of a window, a threshold, and a memory or an error. Out: sizes of a cube, and the rates of missed
and false super hosts to expect of it. Read `prediction` first. `population` models the hosts of a window and what they
put on the columns of a host, `decision` says how likely a host is named and passes the threshold. `prediction` combines
them, `choice` searches for the best sizes. `detectors/formulas.py` has exact results for one column or label.
"""
