"""The link over NATS JetStream: the embedded broker, and both ends of the link.

Durable, encrypted, with permissions per site; edges need no open port. `wire` defines subjects and messages, `options`
says how to reach a server, `connect` opens connections and explains their errors. An edge's end is `send`, with `pace`;
the hub's is `receive`, with `pieces`, `answers`, and what these share: `reception`, `jobs`, `arrivals`, `assembly`,
`stream` and `identity`. `broker`, `setup`, `process` and `enrolment` run the embedded server and its users.
"""
