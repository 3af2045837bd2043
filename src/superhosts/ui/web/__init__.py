"""The dashboard: what `--web` and `superhosts web` show in a browser.

    View (superhosts.ui.views)  →  answers.py  JSON, made once for all viewers
    Board.listeners          →  changes.py  wakes the viewers' event streams
                                access.py   who may ask: token, host names, origin
                                pages.py    the files of the page, from a fixed list
                                app.py      the routes, and the headers of all answers
                                workers.py  the threads that make answers
                                server.py   the thread, its sockets and limits

Everything is read-only, but for muting alerts. The work that is shown never waits for a viewer: it wakes the event
loop of the server, and answers are made in threads of their own.
"""
