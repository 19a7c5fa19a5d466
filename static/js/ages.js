// Ages tick in the browser, so that a page never looks fresher than it is.
const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

/** `53 s`, `6 m`, `1 h 18 m`: at most two units, as the server writes them. */
export function ageText(seconds) {
  const left = Math.max(0, Math.floor(seconds));
  const place = UNITS.findIndex(([unit, size]) => left >= size || unit === "s");
  const [unit, size] = UNITS[place];
  const first = Math.floor(left / size);
  if (unit === "s" || unit === "m") return `${first} ${unit}`;
  const [smaller, smallerSize] = UNITS[place + 1];
  const second = Math.floor((left % size) / smallerSize);
  return second ? `${first} ${unit} ${second} ${smaller}` : `${first} ${unit}`;
}

/** The first unit only, for tiles. */
export function shortAge(text) {
  return text.split(" ").slice(0, 2).join(" ");
}

// The server's clock decides; a laptop may be minutes off.
let clockOffset = 0;

/** Seconds since the epoch by the server's clock. */
export function serverNow() {
  return Date.now() / 1000 + clockOffset;
}

export function learnServerTime(seconds) {
  clockOffset = seconds - Date.now() / 1000;
}

/** Writes the age into every element that carries `data-age-of` (an instant). */
export function tickAges(root = document) {
  const now = serverNow();
  for (const element of root.querySelectorAll("[data-age-of]")) {
    const at = Date.parse(element.dataset.ageOf) / 1000;
    if (Number.isNaN(at)) continue;
    const whole = ageText(now - at);
    const text = element.dataset.ageShort === undefined ? whole : shortAge(whole);
    if (element.textContent !== text) element.textContent = text;
  }
}
