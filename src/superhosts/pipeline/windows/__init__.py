"""Windows of event time: where each packet goes, and when a window closes."""
