"""`superhosts key`: the secret keys of sketches."""

from __future__ import annotations

import json
import os
from pathlib import Path

from superhosts.cli._keys import next_key, warn_if_exposed
from superhosts.cli.usage.setup import KeyNew, KeyShow
from superhosts.core.files import replaceable
from superhosts.core.hashing import fingerprint
from superhosts.core.keys import PUBLIC, VARIABLE, find_key, own_path, write_key
from superhosts.errors import OutputError, UsageError
from superhosts.output.console import tell


def key_new(options: KeyNew) -> None:
    path = options.file or own_path()
    if path is None:
        raise UsageError("this user has no home folder: name the file, like superhosts key new FILE")
    if str(path) == PUBLIC:
        raise UsageError(f"{PUBLIC} is the name of the public key: write ./{PUBLIC} for a file of this name")
    if os.path.lexists(path) and not options.force:
        why = "exists; the sketches that were written with it can be queried only with it. --force replaces it"
        raise OutputError(f"{path}: {why}")
    target = replaceable(path)
    try:
        secret = write_key(target, replace=options.force)
    except OSError as error:
        raise OutputError(f"{error.filename or path}: cannot be written: {error.strerror or error}") from None
    print(fingerprint(secret))
    use = "commands use it without --key-file" if options.file is None else f"use it with --key-file {path}"
    tell(f"made the key {path}: {use}; sites must share this key to be merged")


def key_show(options: KeyShow) -> None:
    chosen = find_key(options.file, option="")
    if chosen is None:
        tell(f"you have no key of your own yet; {next_key()}")
        if options.json:
            print(json.dumps({"fingerprint": None, "place": None, "public": False}))
        return
    warn_if_exposed(chosen)
    if options.json:
        facts = {"fingerprint": chosen.fingerprint, "place": str(chosen.place), "public": chosen.is_public}
        print(json.dumps(facts))
        return
    print(chosen)
    if chosen.is_public:
        tell("this key is public: it protects nothing")
    elif isinstance(chosen.place, Path) and options.file is None:
        tell(f"this is your own key; --key-file FILE or {VARIABLE} gives another")
