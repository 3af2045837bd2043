"""The link over NATS JetStream: the embedded broker, and both ends of the line.

Durable, encrypted, with rights for each site; edges need no open port. The parts: `connect` (addresses, credentials,
plain words for errors), `wire` (subjects and messages), `send` and `pace` (an edge's side), `receive`, `assembly`,
`room`, `answers` and `stream` (the hub's side), `broker`, `setup`, `process` and `enrolment` (the embedded server and
its users).
"""
