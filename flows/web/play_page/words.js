// Instructions and numbers in words.

const LINE = /^(Character: (?<character>[^;]*); )?Motion: (?<motion>[^;]*?)(; Background: (?<background>[^;]*?))?\.?$/;

/** The instruction line of the three fields; a field without text is left out. */
export function compose(characters, motion, background) {
  const parts = [["Character", characters.join(", ")], ["Motion", motion], ["Background", background]];
  const line = parts.filter(([, text]) => text).map(([name, text]) => `${name}: ${text}`).join("; ");
  return line && `${line}.`;
}

/** The fields of an instruction line, or null if the text is no such line. */
export function parse(text) {
  const found = LINE.exec(text.trim())?.groups;
  if (!found) return null;
  const characters = (found.character ?? "").split(",").map((name) => name.trim()).filter(Boolean);
  return { characters, motion: found.motion, background: found.background ?? "" };
}

/** Places apart from the times of day that stand before them, as in "night beach". */
export function splitTimes(places, known) {
  const timeOf = (place) => known.find((time) => place.startsWith(`${time} `) && places.includes(place.slice(time.length + 1)));
  const met = new Set(places.map(timeOf));
  return { places: places.filter((place) => !timeOf(place)), times: known.filter((time) => met.has(time)) };
}

/** The pairs of a character, motion and place that no clip of the training data shows; `together` lists those it shows. */
export function unmet(together, times, characters, motion, place) {
  const places = [place, ...times.map((time) => `${time} ${place}`)];
  const known = new Set([...Object.keys(together), ...Object.values(together).flat()]);
  const met = (word, others) => !known.has(word) || !others.some((other) => known.has(other)) || others.some((other) => together[word]?.includes(other));
  const pairs = characters.filter((name) => !met(name, places)).map((name) => [name, place]);
  if (!met(motion, places)) pairs.push([motion, place]);
  if (characters.length && !characters.some((name) => met(name, [motion]))) pairs.push([characters.join(" or "), motion]);
  return pairs;
}

/** An instruction as it is told on the page. */
export function told(instruction) {
  const fields = parse(instruction);
  return fields ? [fields.characters.join(", "), fields.motion, fields.background].filter(Boolean).join(" · ") : instruction;
}

export const signed = (number) => (number > 0 ? `+${number}` : `\u2212${-number}`);

/** How long it still takes, roughly. */
export function about(seconds) {
  if (seconds < 1) return "a moment";
  return seconds < 90 ? `about ${Math.round(seconds)} s` : `about ${Math.round(seconds / 60)} min`;
}
