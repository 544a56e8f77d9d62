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

/** 1st, 2nd, 3rd, 4th, ...; at most ten films. */
export const ordinal = (rank) => `${rank}${["", "st", "nd", "rd"][rank] ?? "th"}`;
