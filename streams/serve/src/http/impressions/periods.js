// Days and months as dates such as 2026-03-01, and times as a zone's clock shows them. What a zone's hours are is the server's word.

const DAY_MS = 86_400_000;
export const QUARTER_MS = 900_000;

const utc = date => Date.parse(`${date}T00:00:00Z`);
const text = ms => new Date(ms).toISOString().slice(0, 10);

export const addDays = (date, days) => text(utc(date) + days * DAY_MS);
export const monthOf = date => `${date.slice(0, 8)}01`;

export function addMonths(date, months) {
  const [year, month] = date.split("-").map(Number);
  return text(Date.UTC(year, month - 1 + months, 1));
}

/** Whether a text is a day that can have counts. */
export const isDay = date => /^\d{4}-\d\d-\d\d$/.test(date) && !Number.isNaN(utc(date)) && text(utc(date)) === date
  && date >= "1970-01-01" && date < "2448";

const HOUR_END = /^T\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)$/;
const isTime = time => isDay(time.slice(0, 10)) && HOUR_END.test(time.slice(10));

/** Whether two texts are the ends of an hour of some zone, of which none is longer than 90 minutes. */
export const isHour = (from, to) => {
  const quarters = isTime(from) && isTime(to) ? (quarterOf(Date.parse(to)) - quarterOf(Date.parse(from))) / QUARTER_MS : 0;
  return quarters >= 1 && quarters <= 6;
};

/** The Monday of a week. */
export const weekOf = date => addDays(date, -((new Date(utc(date)).getUTCDay() + 6) % 7));

/** Date, hour and minute that a zone's clock shows. */
export function clockOf(ms, zone) {
  const parts = new Intl.DateTimeFormat("en-CA", {
    timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", hourCycle: "h23",
  }).formatToParts(ms);
  const part = name => parts.find(({ type }) => type === name).value;
  return { date: `${part("year")}-${part("month")}-${part("day")}`, time: `${part("hour")}:${part("minute")}` };
}

/** An instant as a server reads it. */
export const instant = ms => `${new Date(ms).toISOString().slice(0, 19)}Z`;
/** The beginning of the quarter of an hour that holds a time. */
export const quarterOf = ms => Math.floor(ms / QUARTER_MS) * QUARTER_MS;

const named = options => new Intl.DateTimeFormat("en", { timeZone: "UTC", ...options });
const long = named({ weekday: "long", year: "numeric", month: "long", day: "numeric" });
const short = named({ month: "short", day: "numeric" });
const withYear = named({ month: "short", day: "numeric", year: "numeric" });
const month = named({ month: "long", year: "numeric" });

export const dayText = date => long.format(utc(date));
export const shortDay = date => short.format(utc(date));
export const monthText = date => month.format(utc(date));
export const weekText = date => `${short.format(utc(date))} to ${withYear.format(utc(addDays(date, 6)))}`;

/** Of a time such as 2026-03-01T14:00:00+05:45. */
export const dateOf = time => time.slice(0, 10);
export const timeOf = time => time.slice(11, 16);
