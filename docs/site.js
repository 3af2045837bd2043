// Browsers start no workers for pages that are read from a disk, and the search is one. A hidden frame does its work.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const page = this.frame.contentDocument;
      const script = page.createElement("script");
      this.frame.contentWindow.postMessage = (data) => this.onmessage?.({ data });
      this.started = new Promise((resolve) => (script.onload = resolve));
      script.src = url;
      page.body.append(script);
    }

    async postMessage(data) {
      await this.started;
      this.frame.contentWindow.onmessage({ data });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
