"""The live view in the terminal (`superhosts top`): the answers of a view (`ui/view.py`), drawn with Textual.

`feed.py` gets the answers, here or from a web address. `hosts.py`, `pages.py` and `drawing.py` turn them into text and
know nothing of Textual. `app.py` has the program and the screen of hosts, `screens.py` the other screens.
"""
