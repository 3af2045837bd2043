"""Tables of connections or flows as traffic: a row is a packet from its source to its destination at its time."""
