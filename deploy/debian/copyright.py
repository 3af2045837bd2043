"""Print the licences of superhosts and of all packages in its environment: usr/share/doc/superhosts/copyright."""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, distributions

UNWANTED = re.compile(r"\b(A|L)?GPL|GNU (Affero|Lesser|Library|General)")  # licences that no package in it may have


def licence_of(package: Distribution) -> str:
    """Return the name of a package's licence as its metadata has it."""
    about = package.metadata
    named = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier", []) if each.startswith("License ::")]
    return about.get("License-Expression") or ", ".join(named) or str(about.get("License", "")).partition("\n")[0]


def main() -> None:
    print("superhosts, and the packages below /opt/superhosts with which it runs, each under its own licence.")
    print("NumPy brings libraries with licences of their own, also GPL with an exception and LGPL: see numpy.libs.")
    for package in sorted(distributions(), key=lambda each: each.name.lower()):
        licence = licence_of(package)
        if not licence or UNWANTED.search(licence):
            sys.exit(f"copyright.py: {package.name} has the licence {licence or 'unknown'}")
        print(f"\n{'=' * 80}\n{package.name} {package.version}: {licence}")
        for path in package.files or ():
            if ".dist-info" in path.parts[0] and re.search("licen[cs]e|copying|notice", str(path), re.IGNORECASE):
                print(f"\n{path.locate().read_text('utf-8').strip()}")


if __name__ == "__main__":
    main()
