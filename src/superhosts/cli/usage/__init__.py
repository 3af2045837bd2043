"""What each command takes: a class of its options, in a file of its family.

The docstring of the class is the command's help after its first line, which is in `superhosts.cli.HELP`. The bodies are
in `cli/`, a file for each command. They import what the work needs, compiled code for instance, and are loaded when a
command runs. The files here import nothing that is slow to load, so that help shows at once.
"""
