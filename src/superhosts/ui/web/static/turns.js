// The questions of one page: one at a time. What changes meanwhile is one more question afterwards. What the reader chooses takes
// the place of the one on its way, so that a late answer never shows what is not wanted any more.

const BUSY = 3000; // milliseconds until a server that is busy is asked again

export class Turns {
  constructor(page, onShown, onFailed) {
    this.page = page;
    this.onShown = onShown;
    this.onFailed = onFailed;
    this.current = null; // aborts the question on its way
    this.again = false;
    this.closed = false;
    this.timer = undefined;
  }

  // Something has changed at the server, or it is time to look again.
  refresh(changed = false) {
    if (this.current) this.again = true;
    else this.run(changed);
  }

  // The reader wants something else.
  restart() {
    this.current?.abort();
    this.run(false);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.current?.abort();
    this.current = null;
  }

  async run(changed) {
    if (this.closed) return;
    clearTimeout(this.timer);
    const turn = new AbortController();
    this.current = turn;
    this.again = false;
    try {
      if (changed && this.page.changed) await this.page.changed(turn.signal);
      else await this.page.refresh(turn.signal);
      if (this.current === turn) this.onShown();
    } catch (error) {
      if (this.current !== turn) return; // replaced, or left
      this.onFailed(error);
      if (error.status === 503) this.timer = setTimeout(() => this.refresh(), BUSY);
    } finally {
      if (this.current === turn) {
        this.current = null;
        if (this.again) this.run(true);
      }
    }
  }
}
