"""Mail: `smtp://user@host:587/?to=a@example.net,b@example.net&from=c@example.net`, one mail for each window with hosts.

`smtps://host:465` uses TLS from the beginning. `tls` is `require` (STARTTLS; the default with a user), `try` (without)
or `off`: a password is never sent without TLS, unless `tls=off` says so. The mail lists the hosts or alerts as text,
and has the records as lines attached, of JSON or in another `format`.
"""

from __future__ import annotations

import smtplib
import socket
from email.headerregistry import Address as Mailbox
from email.message import EmailMessage
from email.utils import formatdate
from secrets import token_hex
from typing import ClassVar

from superhosts.core.text import counted, printable
from superhosts.output.records import ALERT, Batch, describe, shown_records, title_of
from superhosts.output.senders import TIMEOUT, Address, PermanentError, Sender, TemporaryError, reason_of

SHOWN = 200  # hosts in the text of a mail


class Mail(Sender):
    options: ClassVar[tuple[str, ...]] = (
        "to",
        "from",
        "password-file",
        "tls",
        "format",
        "timeout",
        "ca",
        "cert",
        "key",
    )
    most_records = None

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._implicit = address.scheme == "smtps"
        self._place = address.host_and_port(465 if self._implicit else 587 if address.user else 25)
        self._to = [each.strip() for each in address.options.get("to", "").split(",") if each.strip()]
        self._from = address.options.get("from") or f"superhosts@{socket.gethostname()}"
        if not self._to:
            raise address.error("name the recipients: to=noc@example.net")
        for each in (*self._to, self._from):
            try:
                Mailbox(addr_spec=each)
            except Exception:  # the parser raises errors of many kinds
                raise address.error(f"{printable(each)}: not an address like noc@example.net") from None
        self._tls = address.choice("tls", ("require", "try", "off"), "require" if address.user else "try")
        self._timeout = address.seconds("timeout", TIMEOUT)
        if address.user and address.file("password-file") is None and not address.password:
            raise address.error("name the file of the password: password-file=FILE")
        if self._tls != "off" or self._implicit:
            address.tls()

    def deliver(self, batch: Batch) -> None:
        if batch.records:
            self.send(self.message(batch))

    def send(self, mail: EmailMessage) -> None:
        """Send one mail, or raise TemporaryError or PermanentError."""
        try:
            with self._connect() as server:
                server.send_message(mail, self._from, self._to)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            text = "; ".join(f"{code} {_text(said)}" for code, said in error.recipients.values())
            raise (PermanentError if all(code >= 500 for code in codes) else TemporaryError)(text) from None
        except smtplib.SMTPAuthenticationError as error:  # An operator can mend this, so reports wait.
            raise TemporaryError(f"it refuses user or password ({error.smtp_code} {_text(error.smtp_error)})") from None
        except smtplib.SMTPResponseException as error:
            kind = PermanentError if 500 <= error.smtp_code < 600 else TemporaryError
            raise kind(f"it answers {error.smtp_code} {_text(error.smtp_error)}") from None
        except (smtplib.SMTPException, OSError) as error:
            raise TemporaryError(reason_of(error)) from None

    def message(self, batch: Batch) -> EmailMessage:
        lines = [batch.heading, "", *(describe(record) for record in shown_records(batch))]
        if len(batch.records) > SHOWN:
            lines.append(f"and {len(batch.records) - SHOWN:,} more, in the attachment")
        mail = self.message_of(_subject(batch), "\n".join(lines) + "\n", batch.id)
        rows = "".join(f"{self.line(record)}\n" for record in batch.records)
        ending = "cef" if self.format == "cef" else "jsonl"
        mail.add_attachment(rows.encode(), maintype="application", subtype="x-ndjson", filename=f"superhosts.{ending}")
        return mail

    def message_of(self, subject: str, text: str, id: str = "") -> EmailMessage:
        """Return a mail with a plain text; `id` is the same if the mail is sent again."""
        mail = EmailMessage()
        mail["Subject"] = subject
        mail["From"], mail["To"], mail["Date"] = self._from, ", ".join(self._to), formatdate()
        mail["Message-ID"] = f"<{id or token_hex(16)}@superhosts.invalid>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(text)
        return mail

    def _connect(self) -> smtplib.SMTP:
        host, port = self._place
        if self._implicit:
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=self._timeout, context=self.address.tls())
        else:
            server = smtplib.SMTP(host, port, timeout=self._timeout)
        try:
            server.ehlo()
            offers = server.has_extn("starttls")
            if not self._implicit and (self._tls == "require" or (self._tls == "try" and offers)):
                if not offers:
                    way = "a password needs it (tls=off sends it in the clear)"
                    raise TemporaryError(f"it offers no STARTTLS, and {way}")
                server.starttls(context=self.address.tls())
                server.ehlo()
            if self.address.user:
                try:
                    password = self.address.read_password()
                except (OSError, ValueError) as error:
                    raise TemporaryError(str(error)) from None
                server.login(self.address.user, password)
        except BaseException:
            server.close()
            raise
        return server


def _subject(batch: Batch) -> str:
    """Return what happened, if it is one alert; else how many there are."""
    where = f" at {batch.site}" if batch.site else ""
    if batch.kind != ALERT:
        return f"{counted(len(batch.records), 'super host')}{where}, {batch.window_start or 'all windows'}"
    return title_of(batch.records[0]) + where if len(batch.records) == 1 else f"alerts{where}: {batch.heading}"


def _text(said: bytes | str) -> str:
    return printable(said.decode("utf-8", "replace") if isinstance(said, bytes) else said)
