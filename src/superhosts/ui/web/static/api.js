// Questions to the server, and its events.

export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export async function get(name, parameters = {}, signal = undefined) {
  const asked = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") asked.set(key, value);
  }
  const query = asked.toString();
  const content = await read(await fetch(`api/${name}${query ? `?${query}` : ""}`, { signal }));
  signal?.throwIfAborted();
  return content;
}

export async function post(name, content) {
  const body = JSON.stringify(content);
  return read(await fetch(`api/${name}`, { method: "POST", headers: { "Content-Type": "application/json" }, body }));
}

async function read(response) {
  let content = null;
  try {
    content = await response.json();
  } catch {
    // An answer without JSON is an error below.
  }
  if (!response.ok || content === undefined) {
    throw new ApiError(response.status, content?.error || `the server answered ${response.status}`);
  }
  return content;
}

const RETRY = 3000; // milliseconds
const PATIENCE = 10000;

// Calls `onChange` after each change from `known` on, and `onLink` with true or false when the link comes or goes.
export function listen(known, onChange, onLink) {
  let source = null;

  // A source of events does not say why it has failed: an ordinary question does. Another token is asked for by the page itself.
  async function again() {
    source.close();
    known = null; // another program may answer the next time
    onLink(false);
    try {
      await get("summary", {}, AbortSignal.timeout(PATIENCE));
    } catch (error) {
      if (error.status === 401) location.reload();
    }
    setTimeout(open, RETRY);
  }

  function open() {
    source = new EventSource("api/events");
    source.addEventListener("open", () => onLink(true));
    source.addEventListener("changed", (event) => {
      const state = JSON.parse(event.data);
      if (known !== state.changed) onChange(state);
      known = state.changed;
    });
    source.addEventListener("error", again);
  }

  open();
}
