// The menu to keep a game: the game as a file, saved and opened, and its film as MP4 or GIF.

import { RequestError } from "./api.js";
import { filmOf, followFilm, openSaved, readSavable, savedOf } from "./game.js";
import { at, element } from "./page.js";

const download = (href) => element("a", { href, download: "" }).click();

export class Keep {
  #of = {}; // game and turn that the film ends with
  #limits = {};
  #stopMaking = null;

  /** `open` is called with the id of a game that was opened from a file. */
  constructor(open) {
    at("save").onclick = () => this.#save(this.#of.game);
    for (const kind of ["mp4", "gif"]) at(kind).onclick = () => this.#make(kind);
    at("stop").onclick = () => this.#end("Stopped. No film was made.");
    at("open").onchange = (event) => this.#open(event.target, open);
    at("captions").checked = localStorage.getItem("captions") === "on";
    at("captions").onchange = () => localStorage.setItem("captions", at("captions").checked ? "on" : "off");
  }

  limit(limits) {
    this.#limits = limits;
  }

  /** Offers what can be kept of a game up to a turn; without a turn, only to open another. */
  show(game, turn, turns) {
    if (game !== this.#of.game && !this.#stopMaking) this.#say("");
    this.#of = { game, turn };
    for (const id of ["save", "mp4", "gif", "captions"]) at(id).disabled = !turn;
    const most = this.#limits.gif_turns;
    at("gif").textContent = turns > most ? `Film as GIF, the last ${most} turns` : "Film as GIF";
  }

  async #save(game) {
    try {
      await readSavable(game);
      download(savedOf(game));
      this.#say("");
    } catch (error) {
      this.#complain(error);
    }
  }

  #make(kind) {
    const { game, turn } = this.#of;
    const captions = at("captions").checked;
    this.#stopMaking?.();
    at("stop").hidden = false;
    this.#say("The film is being made");
    this.#stopMaking = followFilm(game, turn, kind, captions, ({ share, done, message }) => {
      if (done) {
        this.#end("The film is made.");
        download(filmOf(game, turn, kind, captions));
      } else if (message) this.#end(message);
      else this.#say(`The film is being made: ${Math.floor(100 * share)}%`);
    });
  }

  #end(text) {
    this.#stopMaking?.();
    this.#stopMaking = null;
    at("stop").hidden = true;
    this.#say(text);
  }

  async #open(field, open) {
    const [file] = field.files;
    if (!file) return;
    this.#say("The game is being opened");
    try {
      if (file.size > this.#limits.most_bytes) throw new RequestError("This file is too large to be a saved game.", 413);
      const { id } = await openSaved(file);
      this.#say("");
      at("keeping").hidePopover();
      open(id);
    } catch (error) {
      this.#complain(error);
    } finally {
      field.value = ""; // the same file can be chosen again
    }
  }

  #complain(error) {
    if (!(error instanceof RequestError)) throw error;
    this.#say(error.message);
  }

  #say(text) {
    at("kept").textContent = text;
  }
}
