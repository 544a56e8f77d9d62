// The study's page: the games of a participant, one at a time, and their ranking.

import * as api from "./api.js";
import { Films } from "./films.js";
import { listen } from "./keys.js";
import { at } from "./page.js";
import { isRanked, Ranking } from "./ranking.js";
import { Saving } from "./saving.js";

const films = new Films();
let games = [];
let current = 0;
let ranking, saving;

function open(place) {
  current = Math.min(Math.max(place, 0), games.length - 1);
  history.replaceState(null, "", `#${current + 1}`);
  at("game").textContent = `Game ${current + 1} of ${games.length}`;
  films.show(games[current], (letter) => ranking.choose(letter));
  ranking.show(games[current]);
  showProgress();
  scrollTo(0, 0);
}

/** Goes to the next open question of the game, or to the next game that is not ranked. */
function next() {
  if (ranking.open) {
    ranking.go(ranking.open);
    return;
  }
  const after = [...games.keys()].map((step) => (current + 1 + step) % games.length);
  const place = after.find((place) => !isRanked(games[place]));
  if (place !== undefined) open(place);
}

function showProgress() {
  const ranked = games.filter(isRanked).length;
  const bar = at("progress");
  bar.setAttribute("aria-valuemax", games.length);
  bar.setAttribute("aria-valuenow", ranked);
  bar.querySelector("i").style.width = `${(100 * ranked) / games.length}%`;
  bar.querySelector("span").textContent = `${ranked} of ${games.length} ranked`;
  const isOpen = Boolean(ranking.open);
  at("next").firstChild.data = isOpen ? "Next question " : "Next open game ";
  at("next").disabled = ranked === games.length;
  at("game-before").disabled = current === 0;
  at("game-after").disabled = current === games.length - 1;
  at("all-done").hidden = ranked < games.length || saving.left.length > 0;
}

function showSaving(waiting, error) {
  at("saved").textContent = error ? `Not saved. ${error.message}` : waiting ? "saving…" : "saved";
  at("saved").classList.toggle("failed", Boolean(error));
  at("retry").hidden = !error;
  showProgress();
}

async function start() {
  const study = await api.readStudy();
  games = study.games;
  const shown = new Map(games.map((game) => [game.token, game]));
  saving = new Saving(shown, showSaving);
  for (const { game, criterion, order } of saving.left) shown.get(game).orders[criterion] = order;
  at("dropped").textContent = `Answers dropped: ${saving.dropped}. They were not saved yet, and their films have changed. Please rank the games that are open.`;
  at("dropped").hidden = !saving.dropped;
  ranking = new Ranking(study.criteria, (criterion, order) => saving.make(games[current].token, criterion, order), (places) => films.mark(places));
  document.querySelector("main").hidden = false;
  const asked = Number(location.hash.slice(1));
  const begun = games.some((game) => Object.keys(game.orders).length);
  const first = games.findIndex((game) => !isRanked(game));
  open(asked >= 1 && asked <= games.length ? asked - 1 : Math.max(first, 0));
  listen({
    choose: (letter) => ranking.choose(letter),
    back: () => ranking.back(),
    move: (by) => ranking.move(by),
    next,
    play: () => films.switchPlaying(),
    step: (by) => films.step(by),
    alone: (letter) => films.alone(letter),
    game: (by) => open(current + by),
    help: () => at("help").showModal(),
  });
  if (saving.left.length) saving.send();
  if (!begun) at("help").showModal();
}

at("next").addEventListener("click", next);
at("game-before").addEventListener("click", () => open(current - 1));
at("game-after").addEventListener("click", () => open(current + 1));
at("retry").addEventListener("click", () => saving.send());
at("help-button").addEventListener("click", () => at("help").showModal());
addEventListener("beforeunload", (event) => {
  if (saving?.left.length) event.preventDefault();
});

start().catch((error) => {
  if (!(error instanceof api.Refusal)) throw error;
  at("failed").textContent = error.message;
  at("failed").hidden = false;
});
