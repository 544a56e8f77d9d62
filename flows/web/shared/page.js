// Elements and small texts of the page.

export const at = (id) => document.getElementById(id);

export function element(name, properties = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...inside);
  return made;
}

/** A time of the film: 1:02:03.5, 12:03.5. */
export function clock(seconds) {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  const rest = (Math.floor(seconds * 10) / 10 % 60).toFixed(1);
  return hours ? `${hours}:${two(minutes)}:${two(rest, 4)}` : `${minutes}:${two(rest, 4)}`;
}

const two = (number, width = 2) => String(number).padStart(width, "0");

export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
