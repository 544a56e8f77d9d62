// The state of the work: progress, saving, and lines of the review file that could not be used.

import { counted, element } from "./page.js";

const at = (id) => document.getElementById(id);

export function showProgress(clips) {
  const all = clips.asked.length;
  const bar = at("progress");
  bar.setAttribute("aria-valuemax", all);
  bar.setAttribute("aria-valuenow", clips.reviewed);
  bar.firstElementChild.style.width = `${all ? (100 * clips.reviewed) / all : 0}%`;
  bar.lastElementChild.textContent = `${clips.reviewed.toLocaleString("en")} of ${all.toLocaleString("en")} reviewed`;
}

/** Shows "saved" only if every decision is on the server's disk. */
export function showSaving({ waiting, error }) {
  const saved = at("saved");
  saved.classList.toggle("failed", Boolean(error));
  saved.textContent = error ? `${counted(waiting, "decision")} not saved. ${error.message}` : waiting ? `saving ${waiting.toLocaleString("en")}` : "saved";
  at("retry").hidden = !error;
  at("discard").hidden = !error || error.status !== 422;
}

/** Names the data set, and the lines of the review file that are not applied. */
export function showNotices(info) {
  at("dataset").textContent = info.name;
  at("task").textContent = `${info.sample ? "audit" : "review"}${info.blind ? ", blind" : ""} by ${info.reviewer}`;
  const counts = Object.entries(info.counts).filter(([, count]) => count).map(([kind, count]) => `${counted(count, "line")} ${kind}`);
  const [summary, list] = at("notices").children;
  at("notices").hidden = counts.length === 0;
  summary.textContent = `${info.file}: ${counts.join(", ")}; not applied`;
  list.replaceChildren(...info.faults.map((text) => element("li", { textContent: text, dir: "auto" })));
}
