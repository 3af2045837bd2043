"""Kafka: `kafka://broker:9092/topic`, one message for each record, of JSON or in another `format`.

The key of a message is the host, so that all messages of a host are in one partition, in order. The header `id` is the
id of the record. `config` names a file with properties of librdkafka, one `name=value` in a line: TLS, passwords. A
batch is delivered when all replicas in sync have it (`acks=all`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from superhosts.core.kafkaclient import import_client, read_properties, reason_of, with_ports
from superhosts.output.records import Batch
from superhosts.output.senders import TIMEOUT, Address, PermanentError, Sender, TemporaryError


class Kafka(Sender):
    options: ClassVar[tuple[str, ...]] = ("config", "format", "timeout")

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._client = import_client("kafka://")
        self._topic = address.path.strip("/")
        if not address.place or not self._topic or "/" in self._topic:
            raise address.error("name a broker and a topic, like kafka://broker:9092/superhosts")
        self._timeout = address.seconds("timeout", TIMEOUT)
        config = address.file("config")
        self._settings: dict[str, Any] = {
            "bootstrap.servers": with_ports(address.place),
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": int(self._timeout * 1000),
            "log_level": 2,  # its errors come as answers
            **({} if config is None else read_properties(str(config))),
        }
        self._producer: Any = None

    def deliver(self, batch: Batch) -> None:
        errors: list[Any] = []

        def answered(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append(error)

        try:
            if self._producer is None:
                self._producer = self._client.Producer(self._settings)
            for record in batch.records:
                self._producer.produce(
                    self._topic,
                    self.line(record).encode(),
                    key=str(record.get("host", "")).encode(),
                    headers={"id": str(record["id"]).encode()},
                    on_delivery=answered,
                )
                self._producer.poll(0)
            left = self._producer.flush(self._timeout + 5)
        except (self._client.KafkaException, BufferError) as error:
            self.close()
            raise TemporaryError(reason_of(error)) from None
        if left or errors:
            self.close()
            text = errors[0].str() if errors else "it does not answer"
            is_too_long = bool(errors) and errors[0].code() == self._client.KafkaError.MSG_SIZE_TOO_LARGE
            raise PermanentError(text) if is_too_long else TemporaryError(text)

    def close(self) -> None:
        """Forget the producer, and what it still has: the whole batch comes again."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None
