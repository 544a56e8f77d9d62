// The three bars of the character.

import { signed } from "./words.js";

/** Moves the bars to the values, and shows by how much the turn changed them. */
export function showValues(values, changes) {
  for (const row of document.querySelectorAll(".value")) {
    const value = values[row.dataset.value];
    const by = changes[row.dataset.value] ?? 0;
    const meter = row.querySelector("[role=meter]");
    meter.setAttribute("aria-valuenow", value);
    meter.setAttribute("aria-valuetext", by ? `${value} of 100, ${by > 0 ? "plus" : "minus"} ${Math.abs(by)}` : `${value} of 100`);
    meter.firstElementChild.style.width = `${value}%`;
    row.querySelector("b").textContent = value;
    const change = row.querySelector(".change");
    change.textContent = by ? signed(by) : "";
    change.dataset.way = by > 0 ? "up" : "down";
  }
}
