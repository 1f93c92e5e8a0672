// What all pages share: the links of the header, JSON with large numbers, numbers and times as people read them.

const number = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en", {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short",
});

/** Lets the links of the header keep this page's counter and token. */
export function linkPages(counter = "") {
  for (const link of document.querySelectorAll("header a")) {
    link.search = counter && link.pathname !== "/console" ? `?counter=${encodeURIComponent(counter)}` : "";
    link.hash = location.hash;
  }
}

/** Reads JSON in which whole numbers may be too large for a number: those become text, which `BigInt` reads. */
export function exactly(text) {
  const quoted = part => /^-?\d{16,}$/.test(part) ? `"${part}"` : part;
  return JSON.parse(text.replace(/"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g, quoted));
}

export const format = value => number.format(BigInt(value));
export const nameOf = ({ namespace, key }) => `${namespace}/${key}`;

/** A time such as 2026-11-28T08:00:00.123Z, in the reader's zone. */
export function timeText(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? time : clock.format(date);
}

/** The same as an element that says the exact time, too; nothing for an award from before awards had times. */
export function timeElement(time) {
  if (!time) return "";
  const made = document.createElement("time");
  [made.dateTime, made.title, made.textContent] = [time, time, timeText(time)];
  return made;
}
