"""The live view in the terminal (`superhosts top`): what `superhosts.ui.views` answers, drawn with Textual.

`feed.py` and `remote.py` get the answers, here or from a web address. `hosts.py`, `drawing.py` and the modules of lines
turn them into text and know nothing of Textual. `app.py` and the screens show it.
"""
