"""Records in bulk over HTTP, for Splunk and Elasticsearch.

`splunk+https://host:8088?token-file=FILE` sends to an HTTP Event Collector: one request for each batch, in which each
record is an event with its time. `index` and `sourcetype` are those of the events.

`elastic+https://host:9200/INDEX` sends to the `_bulk` API, which OpenSearch has, too. The id of a record is the id of
its document, which is created, never replaced, so a record that comes twice is there once. The answer has a status for
each record: those that were not taken for now come again, without the others; those that are refused for good are
dropped, and counted as one refused report.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from superhosts.core.text import counted, printable
from superhosts.output.mappings import NAME, moment, shaped
from superhosts.output.records import Batch, Record
from superhosts.output.senders import Address, PermanentError, Sender, TemporaryError
from superhosts.output.senders.webhook import OPTIONS, PERMANENT, HttpClient

# Of codes in answers 400 of a collector, those that an operator can mend: wrong index, channel missing or wrong
TEMPORARY_CODE = re.compile(r'"code":\s*(7|10|11)\b')
EXISTS = 409
BRIEF = "?filter_path=items.*.status,items.*.error.type,items.*.error.reason"  # of the answer, what is read here


class Splunk(Sender):
    options: ClassVar[tuple[str, ...]] = ("format", "index", "sourcetype", *OPTIONS)

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._client = HttpClient(address, "/services/collector/event", "Splunk")
        self._common = {"source": NAME, "sourcetype": address.options.get("sourcetype", NAME)}
        if "index" in address.options:
            self._common["index"] = address.options["index"]

    def deliver(self, batch: Batch) -> None:
        if not batch.records:
            return
        events = [
            {"time": round(moment(record).timestamp(), 3), **self._common, "event": shaped(record, self.format)}
            for record in batch.records
        ]
        try:
            self._client.post("\n".join(map(json.dumps, events)).encode(), {})
        except PermanentError as error:
            raise (TemporaryError if TEMPORARY_CODE.search(str(error)) else PermanentError)(str(error)) from None


class Elastic(Sender):
    options: ClassVar[tuple[str, ...]] = ("format", *OPTIONS)
    formats = ("ecs", "ocsf", "json")

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        if not address.path.strip("/"):
            raise address.error("name an index, like elastic+https://search.example:9200/superhosts")
        self._client = HttpClient(address, f"/_bulk{BRIEF}", "ApiKey")
        self._batch = ""  # of which some records wait
        self._waiting: list[Record] = []
        self._refused: list[str] = []  # why records of that batch were refused

    def deliver(self, batch: Batch) -> None:
        if batch.id != self._batch:
            self._batch, self._waiting, self._refused = batch.id, list(batch.records), []
        if self._waiting:
            body = "".join(
                f"{json.dumps({'create': {'_id': each['id']}})}\n{self.line(each)}\n" for each in self._waiting
            )
            answer = self._client.post(body.encode(), {"Content-Type": "application/x-ndjson"})
            self._sort(_items(answer, len(self._waiting)))
        if self._refused:
            refused = f"{counted(len(self._refused), 'record')} of {len(batch.records):,}"
            raise PermanentError(f"{refused}: it answers {self._refused[0]}")

    def _sort(self, items: list[Any]) -> None:
        """Keep the records that are to come again, and raise TemporaryError if there are any."""
        again: list[tuple[Record, str]] = []
        for record, item in zip(self._waiting, items, strict=True):
            status = item["status"]
            text = f"{status} {json.dumps(item.get('error'))}"
            if status in PERMANENT:
                self._refused.append(text)
            elif status != EXISTS and not 200 <= status < 300:
                again.append((record, text))
        self._waiting = [record for record, _ in again]
        if again:
            raise TemporaryError(f"it answers {again[0][1]} for {counted(len(again), 'record')}")


def _items(answer: bytes, count: int) -> list[Any]:
    """Return what an answer says of each record."""
    try:
        items = [dict(item["create"]) for item in json.loads(answer)["items"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        items = []
    if len(items) != count or not all(isinstance(item.get("status"), int) for item in items):
        raise TemporaryError(
            f"its answer is not that of a bulk request: {printable(answer.decode('utf-8', 'replace'))}"
        )
    return items
