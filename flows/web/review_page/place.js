// The place where the reviewer left off: filters and clip, for each data set and reviewer, in this browser.

import { NO_FILTER } from "./filters.js";

const key = (info) => `place ${info.key} ${info.reviewer}`;

/** Return the filters and the clip of the last visit; the clip is null if this browser knows of none. */
export function kept(info) {
  let place = {};
  try {
    place = JSON.parse(localStorage.getItem(key(info)) ?? "{}");
  } catch {
    // written by something else on this address
  }
  const criteria = { ...NO_FILTER };
  for (const name of Object.keys(NO_FILTER)) if (typeof place.criteria?.[name] === "string") criteria[name] = place.criteria[name];
  return { criteria, clip: typeof place.clip === "string" ? place.clip : null };
}

export function keep(info, criteria, clip) {
  try {
    localStorage.setItem(key(info), JSON.stringify({ criteria, clip }));
  } catch {
    // no room in this browser: the next visit begins with the clip decided about last
  }
}
