// What rows say, in the words that tables and pages share.

export const known = (row) => (row.peers === null ? row.peers_low : row.peers);
export const nameOf = (row) => row.label || row.name || "";
export const partOf = (each) => `${each.side}, ${each.direction}`;

// The sites that saw a host. Rows of a hub have each with its own numbers, the one with the most peers first; others have names.
export function sitesOf(row) {
  const found = Array.isArray(row.sites) ? row.sites : [row.sites || row.site].filter(Boolean);
  return found.map((each) => (typeof each === "object" && each !== null ? each : { site: each }));
}

export const siteNames = (row) => sitesOf(row).map((each) => String(each.site));
