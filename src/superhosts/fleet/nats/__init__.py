"""The link over NATS JetStream: the embedded broker, and both ends of the link.

Durable, encrypted, with permissions per site; edges need no open port. `messages` defines subjects and messages,
`credentials` says how to reach a server, `connection` opens connections and explains their errors. An edge's end is
`send`; the hub's is `receive`, with `assembly` for sketches that arrive in pieces. `broker` runs the embedded server,
`enrolment` manages its users and their tokens.
"""
