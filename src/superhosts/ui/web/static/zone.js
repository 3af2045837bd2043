// The zone of all times that are shown: UTC, as in reports, or the reader's own.

const KEY = "superhosts-zone";

export const isLocal = stored() === "local";
export const zone = isLocal ? "local time" : "UTC";

function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // Storage may be forbidden.
  }
}

// The page is loaded again, because times are everywhere. Returns false if the choice cannot be kept.
export function changeZone() {
  try {
    localStorage.setItem(KEY, isLocal ? "utc" : "local");
  } catch {
    return false;
  }
  location.reload();
  return true;
}

// A date whose UTC fields are those of the clock in this zone.
export function dateOf(seconds) {
  const date = new Date(seconds * 1000);
  return isLocal ? new Date(date - date.getTimezoneOffset() * 60000) : date;
}

// The moment of a field for a date and a time; null if it is empty.
export const secondsOf = (text) => (text ? Date.parse(isLocal ? text : `${text}Z`) / 1000 : null);
