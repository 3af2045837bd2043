"""`python -m superhosts` is `superhosts`."""

from superhosts.cli import main

if __name__ == "__main__":
    main()
