// The filter of tables: words that must all be found, of which one with a slash may be a prefix, and finds the addresses inside.
// `superhosts top` has the same rule.

// Returns the function that says whether a host, with the text of its row, is wanted.
export function testOf(words) {
  const tests = words.trim().split(/\s+/).filter(Boolean).map(test);
  return (host, text) => {
    const small = text.toLowerCase();
    return tests.every((each) => each(host, small));
  };
}

function test(word) {
  const wanted = word.includes("/") ? networkOf(word) : null;
  if (wanted !== null) return (host) => isIn(networkOf(host), wanted);
  const small = word.toLowerCase();
  return (_, text) => text.includes(small);
}

function isIn(host, network) {
  if (host === null || host.size !== network.size || host.length < network.length) return false;
  const rest = BigInt(network.size - network.length);
  return host.number >> rest === network.number >> rest;
}

// An address, or a prefix like 10.0.0.0/8 or 10.0.0.0/255.0.0.0, as a number of `size` bits, of which `length` count; null if
// it is none.
function networkOf(text) {
  const [address, length, ...more] = text.split("/");
  const found = address.includes(":") ? numberOf6(address) : numberOf4(address);
  if (found === null || more.length) return null;
  const size = address.includes(":") ? 128 : 32;
  const counted = length === undefined ? size : lengthOf(length, size);
  return counted === null ? null : { number: found, size, length: counted };
}

// The length of a prefix, which for IPv4 may be a mask of its ones, or of its zeros; null if it is none.
function lengthOf(text, size) {
  if (/^\d{1,3}$/.test(text)) return Number(text) <= size ? Number(text) : null;
  const mask = size === 32 ? numberOf4(text) : null;
  if (mask === null) return null;
  const bits = mask.toString(2).padStart(32, "0");
  if (/^1*0*$/.test(bits)) return bits.lastIndexOf("1") + 1;
  return /^0*1*$/.test(bits) ? bits.indexOf("1") : null;
}

function numberOf4(text) {
  const parts = text.split(".");
  const right = parts.length === 4 && parts.every((part) => /^(0|[1-9]\d{0,2})$/.test(part) && Number(part) < 256);
  return right ? parts.reduce((number, part) => number * 256n + BigInt(part), 0n) : null;
}

function numberOf6(text) {
  const halves = text.split("::");
  if (halves.length > 2) return null;
  const [front, back] = [groupsOf(halves[0], halves.length === 1), groupsOf(halves[1] ?? "", true)];
  if (front === null || back === null) return null;
  const missing = 8 - front.length - back.length;
  if (halves.length === 2 ? missing < 1 : missing !== 0) return null;
  const groups = [...front, ...Array(missing).fill("0"), ...back];
  return groups.reduce((number, group) => number * 65536n + BigInt(`0x${group}`), 0n);
}

// Groups of four hexadecimal digits; the last of the whole address may be an IPv4 address, which is two of them.
function groupsOf(text, isEnd) {
  if (text === "") return [];
  const groups = text.split(":");
  if (isEnd && groups.at(-1).includes(".")) {
    const number = numberOf4(groups.pop());
    if (number === null) return null;
    groups.push((number >> 16n).toString(16), (number & 65535n).toString(16));
  }
  return groups.every((group) => /^[0-9a-f]{1,4}$/i.test(group)) ? groups : null;
}
