"""What each command takes: one file per command with a class of its options, whose docstring is the command's help.

The bodies are in `cli/`, in files of the same names. They import what the work needs, compiled code for instance,
and are loaded when a command runs. The files here import nothing that is slow to load, so that help shows at once.
"""
