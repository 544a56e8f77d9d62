// The contact sheet of report.html: filters over the clips, and a grid that holds only the cards in sight, so that
// twenty thousand clips scroll as lightly as twenty. Text from the dataset only ever goes through textContent.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const pictures = document.getElementById("pictures").textContent.split("\n");
const COLUMNS = ["film", "suffix", "scene", "index", "start", "end", "level", "scope", "camera", "fate", "reasons", "duplicateOf",
  "characters", "caption", "tags", "split", "review", "quality", "overlays", "dialogue", "sound", "better"];
const clips = data.clips.map((row, number) => Object.assign(Object.fromEntries(COLUMNS.map((name, i) => [name, row[i]])), {number}));
const grid = document.getElementById("grid");
const form = document.getElementById("filter-form");
const shown = document.getElementById("shown");
const viewer = document.getElementById("viewer");
const GAP = 14, TEXT_HEIGHT = 76, OVERSCAN_ROWS = 3;

let matching = clips;
let cards = new Map();    // position in `matching` -> its <li>, for the cards in sight
let layout = {columns: 1, width: 200, height: 200, frame: 124, left: 0};

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

function timecode(seconds) {
  const tenths = Math.round(seconds * 10);
  const two = (value) => String(value).padStart(2, "0");
  return `${Math.floor(tenths / 36000)}:${two(Math.floor(tenths / 600) % 60)}:${two(Math.floor(tenths / 10) % 60)}.${tenths % 10}`;
}

const filmOf = (clip) => data.films[clip.film];
const clipId = (clip) => `${filmOf(clip).id}-${clip.suffix}`;
const videoAddress = (clip) => `films/${encodeURIComponent(filmOf(clip).id)}/clips/${encodeURIComponent(clipId(clip))}.mp4`;
const reasonsOf = (clip) => clip.reasons.map((reason) => data.reasons[reason]);
const charactersOf = (clip) => (clip.characters ?? []).map((character) => data.characters[character]);
const levelOf = (clip) => (clip.level === null ? "level not measured" : `level ${clip.level}`);

function haystack(clip) {
  clip.text ??= [clip.caption ?? "", clip.dialogue ?? "", clipId(clip), filmOf(clip).name, ...reasonsOf(clip), ...charactersOf(clip)].join("\n").toLowerCase();
  return clip.text;
}

// ---- filters -------------------------------------------------------------------------------------------------

function settings() {
  return Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
}

function applyFilters() {
  const wanted = settings();
  const words = (wanted.text ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  matching = clips.filter((clip) =>
    (wanted.film === undefined || clip.film === Number(wanted.film)) &&
    (wanted.level === undefined || String(clip.level ?? "none") === wanted.level) &&
    (wanted.verdict === undefined || clip.fate === wanted.verdict) &&
    (wanted.reason === undefined || clip.reasons.includes(Number(wanted.reason))) &&
    (wanted.character === undefined || (clip.characters ?? []).includes(Number(wanted.character))) &&
    words.every((word) => haystack(clip).includes(word)));
  if (wanted.order === "least") matching.sort((a, b) => (a.scope ?? Infinity) - (b.scope ?? Infinity) || a.number - b.number);
  if (wanted.order === "most") matching.sort((a, b) => (b.scope ?? -1) - (a.scope ?? -1) || a.number - b.number);
  const kept = matching.filter((clip) => clip.fate === "kept").length;
  shown.textContent = `${matching.length.toLocaleString("en")} of ${clips.length.toLocaleString("en")} clips, ${kept.toLocaleString("en")} kept`;
  document.getElementById("clear").disabled = Object.keys(wanted).every((name) => name === "order");
  clearCards();
  measure();
}

function setFilters(values) {
  for (const control of form.elements) {
    if (control.name) control.value = values[control.name] ?? "";
  }
  applyFilters();
}

// A link such as #sheet?level=3 (the charts and tables hold them) sets the filters and goes to the sheet.
function applyAddress() {
  const [place, query] = location.hash.slice(1).split("?");
  if (place !== "sheet" || query === undefined) return;
  setFilters(Object.fromEntries(new URLSearchParams(query)));
  document.getElementById("sheet").scrollIntoView();
}

// ---- the grid ------------------------------------------------------------------------------------------------

function measure() {
  const style = getComputedStyle(grid);
  const left = parseFloat(style.paddingLeft);
  const inner = grid.clientWidth - left - parseFloat(style.paddingRight);
  const columns = Math.max(2, Math.floor((inner + GAP) / (206 + GAP)));
  const width = Math.floor((inner - GAP * (columns - 1)) / columns);
  const frame = Math.round(width * data.aspect);
  layout = {columns, width, frame, height: frame + TEXT_HEIGHT + GAP, left};
  grid.style.height = `${Math.ceil(matching.length / columns) * layout.height}px`;
  for (const [position, card] of cards) place(card, position);
  draw();
}

function place(card, position) {
  const column = position % layout.columns, row = Math.floor(position / layout.columns);
  card.style.width = `${layout.width}px`;
  card.style.height = `${layout.height}px`;
  card.style.transform = `translate(${layout.left + column * (layout.width + GAP)}px, ${row * layout.height}px)`;
  card.firstChild.style.height = `${layout.frame}px`;
}

function clearCards() {
  for (const card of cards.values()) card.remove();
  cards = new Map();
}

function draw() {
  const top = -grid.getBoundingClientRect().top;
  const firstRow = Math.max(0, Math.floor(top / layout.height) - OVERSCAN_ROWS);
  const lastRow = Math.floor((top + innerHeight) / layout.height) + OVERSCAN_ROWS;
  const first = firstRow * layout.columns;
  const last = Math.min(matching.length, Math.max(0, lastRow + 1) * layout.columns);
  for (const [position, card] of cards) {
    if ((position < first || position >= last) && !card.contains(document.activeElement)) {
      card.remove();
      cards.delete(position);
    }
  }
  for (let position = first; position < last; position++) {
    if (cards.has(position)) continue;
    const card = makeCard(matching[position], position);
    place(card, position);
    let next = position + 1;
    while (next < last && !cards.has(next)) next++;
    grid.insertBefore(card, cards.get(next) ?? null);   // keeps the tab order the reading order
    cards.set(position, card);
  }
}

function makeCard(clip, position) {
  const label = `Play the clip at ${timecode(clip.start)}, ${clip.fate}, ${levelOf(clip)}`;
  const frame = element("button", {type: "button", class: "frame", "aria-label": label}, stillOf(clip));
  frame.addEventListener("click", () => playInPlace(frame, clip));
  const print = element("div", {class: "print"},
    element("span", {}, timecode(clip.start)),
    element("span", {}, [clip.level && `L${clip.level}`, clip.scope !== null && `${clip.scope.toFixed(clip.scope < 10 ? 2 : 1)} px`].filter(Boolean).join(" ") || "–"));
  const words = element("span", {}, element("span", {class: "hidden"}, `Details, ${clip.fate}: `));
  if (clip.reasons.length) words.append(element("span", {class: "why"}, reasonsOf(clip).join(", ")), clip.caption ? " · " : "");
  words.append(clip.caption ?? (clip.reasons.length ? "" : "no caption"));
  const tell = element("button", {type: "button", class: "tell"}, words);
  tell.addEventListener("click", () => openViewer(position));
  return element("li", {class: clip.fate === "kept" ? "in" : "out", "aria-setsize": matching.length, "aria-posinset": position + 1,
    "data-position": position, "data-clip": clipId(clip)}, frame, print, tell);
}

function stillOf(clip) {
  const picture = pictures[clip.number];
  if (!picture) return element("span", {class: "missing"}, "no picture");
  return element("img", {src: `data:${data.pictureType};base64,${picture}`, alt: "", decoding: "async", draggable: "false"});
}

function playInPlace(frame, clip) {
  if (frame.classList.toggle("playing")) {
    const video = element("video", {src: videoAddress(clip), loop: true, playsinline: true, autoplay: true});
    video.muted = true;   // browsers start only muted videos by themselves, and the attribute is read by the parser alone
    video.addEventListener("error", () => frame.replaceChildren(element("span", {class: "missing"}, "clip file cannot be played")));
    frame.replaceChildren(video);
  } else {
    frame.replaceChildren(stillOf(clip));
  }
}

// ---- near-duplicates, and clips alike in content ---------------------------------------------------------------

const PAIRS_AT_ONCE = 30;
const ofId = new Map(clips.map((clip) => [clipId(clip), clip]));
const repeats = clips.filter((clip) => ofId.has(clip.duplicateOf)).map((clip) => [ofId.get(clip.duplicateOf), clip]);
const alike = (data.alike ?? []).map(([one, other]) => [clips[one], clips[other]]);

function sideOf(clip, role) {
  const label = `Play the ${role}, ${filmOf(clip).name} at ${timecode(clip.start)}`;
  const still = element("button", {type: "button", class: "still", "aria-label": label}, stillOf(clip));
  still.addEventListener("click", () => playInPlace(still, clip));
  const fate = clip.fate + (clip.better ? ", the better copy" : "");
  const lines = [`${filmOf(clip).name}, ${timecode(clip.start)}`, fate, ...(clip.quality ? [clip.quality] : [])];
  return element("div", {}, still, ...lines.map((line) => element("p", {}, line)));
}

function drawMorePairs(id, pairs, role) {
  const list = document.getElementById(id), from = list.childElementCount;
  for (const [one, other] of pairs.slice(from, from + PAIRS_AT_ONCE)) {
    list.append(element("li", {"data-clip": clipId(other)}, sideOf(one, "clip"), sideOf(other, role)));
  }
  document.getElementById(`more-${id}`).hidden = list.childElementCount === pairs.length;
}

function reveal(position) {
  const row = Math.floor(position / layout.columns);
  const top = grid.getBoundingClientRect().top + scrollY + row * layout.height;
  if (top < scrollY + 90 || top + layout.height > scrollY + innerHeight) scrollTo({top: top - innerHeight / 3});
  draw();
  cards.get(position)?.firstChild.focus({preventScroll: true});
}

// Arrow keys walk over the sheet, so the keyboard reaches every clip without a thousand tabs.
grid.addEventListener("keydown", (event) => {
  const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -layout.columns, ArrowDown: layout.columns}[event.key];
  const card = event.target.closest("li");
  if (!step || !card) return;
  event.preventDefault();
  const position = Number(card.dataset.position) + step;
  if (position >= 0 && position < matching.length) reveal(position);
});

// ---- one clip, large -----------------------------------------------------------------------------------------

let viewed = 0;

function openViewer(position) {
  viewed = Math.min(Math.max(position, 0), matching.length - 1);
  const clip = matching[viewed];
  const video = document.getElementById("viewer-video");
  video.src = videoAddress(clip);
  video.muted = true;
  const facts = [["Film", filmOf(clip).name], ["Time", `${timecode(clip.start)} to ${timecode(clip.end)}, scene ${clip.scene}, clip ${clip.index}`],
    ["Verdict", [clip.fate, ...reasonsOf(clip)].join(", ") + (clip.duplicateOf ? ` (repeats ${clip.duplicateOf})` : "")],
    ["Split", clip.split ?? "in no shard"],
    ["Motion", clip.scope === null ? "not measured" : `${levelOf(clip)}, scope ${clip.scope} px per step`],
    ["Camera", clip.camera ?? "undecided"],
    ["Picture", clip.quality ?? "not measured"], ["Overlays", clip.overlays ?? "none known"],
    ["Characters", clip.characters === null ? "not measured" : charactersOf(clip).join(", ") || "none"],
    ["Caption", clip.caption ?? "none"], ["Tags", clip.tags ?? "none"],
    ["Dialogue", clip.dialogue === null ? "no subtitles" : clip.dialogue || "none"], ["Sound", clip.sound ?? "not kept"], ["Clip", clipId(clip)]];
  if (clip.review) facts.push(["Review", clip.review]);
  document.getElementById("viewer-facts").replaceChildren(...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  document.getElementById("viewer-place").textContent = `${(viewed + 1).toLocaleString("en")} of ${matching.length.toLocaleString("en")}`;
  if (!viewer.open) viewer.showModal();
  video.play().catch(() => {});   // a missing file shows as an empty player; the facts are still worth reading
}

document.getElementById("viewer-back").addEventListener("click", () => openViewer(viewed - 1));
document.getElementById("viewer-next").addEventListener("click", () => openViewer(viewed + 1));
document.getElementById("viewer-close").addEventListener("click", () => viewer.close());
viewer.addEventListener("keydown", (event) => {
  if (event.target.tagName === "VIDEO") return;
  if (event.key === "ArrowLeft") openViewer(viewed - 1);
  if (event.key === "ArrowRight") openViewer(viewed + 1);
});
viewer.addEventListener("close", () => {
  document.getElementById("viewer-video").removeAttribute("src");
  reveal(viewed);
});

// ---- wiring --------------------------------------------------------------------------------------------------

// A click on a film's strip goes to the clip at that time.
for (const strip of document.querySelectorAll(".strip")) {
  strip.addEventListener("click", (event) => {
    const box = strip.getBoundingClientRect();
    const seconds = (event.clientX - box.left) / box.width * Number(strip.dataset.seconds);
    setFilters({film: strip.dataset.film});
    const after = matching.findIndex((clip) => clip.end > seconds);
    if (matching.length) reveal(after < 0 ? matching.length - 1 : after);
  });
}

let drawAsked = false;
addEventListener("scroll", () => {
  if (drawAsked) return;
  drawAsked = true;
  requestAnimationFrame(() => { drawAsked = false; draw(); });
}, {passive: true});
new ResizeObserver(measure).observe(grid.parentElement);
addEventListener("hashchange", applyAddress);
addEventListener("click", (event) => { // a link to the present address does not change it
  const link = event.target.closest('a[href^="#sheet?"]');
  if (link?.hash === location.hash) applyAddress();
});
form.addEventListener("input", applyFilters);
document.getElementById("clear").addEventListener("click", () => setFilters({}));
form.addEventListener("submit", (event) => event.preventDefault());
for (const [id, pairs, role] of [["pairs", repeats, "repeat"], ["alike-pairs", alike, "clip alike"]]) {
  if (!pairs.length) continue;
  document.getElementById(id).style.setProperty("--aspect", 1 / data.aspect);
  document.getElementById(`more-${id}`).addEventListener("click", () => drawMorePairs(id, pairs, role));
  drawMorePairs(id, pairs, role);
}
if (matchMedia("(max-width: 40rem)").matches) document.querySelector(".filters").open = false;
applyFilters();
applyAddress();
