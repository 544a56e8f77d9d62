// Playing of the small videos: all at once, or none, as the reviewer wishes or their system asks for less motion.

const still = matchMedia("(prefers-reduced-motion: reduce)");
let running = !still.matches && localStorage.getItem("playing") !== "no";

/** Plays or stops everything from now on; returns the new state. */
export function switchPlaying() {
  running = !running;
  localStorage.setItem("playing", running ? "yes" : "no");
  return running;
}

/** Plays a video if it is in view and videos are to play. */
export function playing(video, inView) {
  if (!inView || !running) return video.pause();
  if (video.paused) {
    video.play().catch((error) => {
      if (!["AbortError", "NotAllowedError", "NotSupportedError"].includes(error.name)) throw error; // another clip came, or its file is gone
    });
  }
}

/** Takes the clip off a video, and ends its request. */
export function quiet(video) {
  if (!video.hasAttribute("src")) return;
  video.removeAttribute("src");
  video.load();
}
