// What rows say, in the words that tables and pages share.

export const known = (row) => (row.peers === null ? row.peers_low : row.peers);
export const nameOf = (row) => row.label || row.name || "";
export const partOf = (each) => `${each.side}, ${each.direction}`;

const MAIN = 0.2; // share of the pairs from which on a port is the main one

// The port of most pairs: null if nothing is known of ports, without a share if there is none that stands out.
export function portOf(row) {
  const port = row.evidence?.ports?.[0];
  return !port ? null : port.share < MAIN ? { port: "many ports" } : port;
}

export const placeOf = (row) => [row.asn ? `AS${row.asn}${row.as_name ? ` ${row.as_name}` : ""}` : "", row.country || ""].filter(Boolean).join(", ");
export const keyOf = (row) => `${row.host} ${row.side} ${row.direction} ${row.counts || ""} ${row.filter || ""}`;

// The sites that saw a host. Rows of a hub have each with its own numbers, the one with the most peers first; others have names.
export function sitesOf(row) {
  const found = Array.isArray(row.sites) ? row.sites : [row.sites || row.site].filter(Boolean);
  return found.map((each) => (typeof each === "object" && each !== null ? each : { site: each }));
}

export const siteNames = (row) => sitesOf(row).map((each) => String(each.site));
