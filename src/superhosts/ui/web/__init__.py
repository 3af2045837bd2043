"""The dashboard: what `--web` and `superhosts web` show in a browser.

    View (ui/view.py)  →  answers.py  JSON, made once for all viewers, in threads of their own
                          access.py   who may ask: token, host names, origin
                          app.py      the routes, the files of the page, event streams, the headers of all answers
                          server.py   the thread, its sockets and limits

Everything is read-only, but for what people do about alerts. The work that is shown never waits for a viewer: it wakes
the event loop of the server, and answers are made in threads of their own.
"""
