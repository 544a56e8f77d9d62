"""Subtitle tracks of a film: streams of its container and files beside it, and the choice of one with dialogue."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition
from av.subtitles.stream import SubtitleStream
from pysubs2 import SSAEvent

from pipeline.core.dialogue import LeftOut, SpokenLine, SubtitleTrack
from pipeline.core.languages import language_of, language_of_word
from pipeline.core.progress import Progress
from pipeline.core.records import Film, SubtitleFile
from pipeline.stages.subtitles.files import SubtitleError, cue, read_events
from pipeline.stages.subtitles.lines import Found, spoken_lines
from pipeline.video.containers import demux, open_film, video_stream
from pipeline.video.film_sound import choose_track
from pipeline.video.recordings import PacketTimes

PICTURES = frozenset({"hdmv_pgs_subtitle", "dvd_subtitle", "dvb_subtitle", "xsub"})
"""Codecs whose subtitles are pictures, as on discs."""
_SUBSTATION, _TIMED = frozenset({"ass", "ssa"}), frozenset({"subrip", "webvtt", "text"})
ELSEWHERE_SHARE = 0.1
"""Share of events beyond the end of the film above which a track belongs to another film."""
_NO_DIALOGUE = re.compile(r"\b(signs?|songs?|karaoke|lyrics|forced|commentary)\b", re.IGNORECASE)
_WHOLE = re.compile(r"\b(full|dialogues?|all)\b", re.IGNORECASE)
_FOR_THE_DEAF = re.compile(r"\b(sdh|cc|hi|hearing)\b", re.IGNORECASE)


@dataclass
class Track:
    """A subtitle track as found, with its events in milliseconds."""

    source: str
    codec: str
    language: str | None
    title: str | None
    flags: Disposition
    is_beside: bool = False
    events: list[SSAEvent] = field(default_factory=list)
    unreadable: int = 0
    fault: str | None = None
    """Reason that it cannot hold the dialogue."""
    start_seconds: float = 0.0
    """Time of the film's first frame on its clock."""


def read_subtitles(
    film: Film,
    files: Sequence[tuple[SubtitleFile, Path]],
    wanted: str | None,
    speech: str | None,
    sound: str | None,
    progress: Progress,
) -> tuple[list[SubtitleTrack], list[SpokenLine]]:
    """Return every subtitle track of a film with the reason it was chosen or not, and the lines of the chosen one.

    Args:
        film: its source is a file on this machine.
        files: the files beside it, and where they are on this machine.
        wanted: the only language to use; with None, that of the speech comes first.
        speech: language of the speech; None for the language of the sound track.
        sound: language of the sound track to look at, if the film has it.

    Raises:
        RecordError: the film cannot be opened.
    """
    tracks = [_beside(one, path) for one, path in files]
    with open_film(Path(film.source), film.film_id) as container:
        track = choose_track(container, sound)
        heard = language_of(track.language) if track else None
        tracks += _inside(container, film, progress)
    return _choose(tracks, film, wanted and (language_of(wanted) or wanted), language_of(speech) or heard)


def _choose(
    tracks: Sequence[Track], film: Film, wanted: str | None, speech: str | None
) -> tuple[list[SubtitleTrack], list[SpokenLine]]:
    for track in tracks:
        if track.fault is None and _is_without_dialogue(track):
            track.fault = "signs, songs or a commentary, by its title"
        elif track.fault is None and wanted and track.language not in (wanted, None):
            track.fault = f"not in the language {wanted}"
    order = [track for track in tracks if track.fault is None]
    order.sort(key=lambda track: _rank(track, wanted or speech))
    film_seconds = film.duration_seconds + film.missing_seconds
    found: dict[int, Found] = {}
    chosen: Track | None = None
    for track in order:
        if chosen:
            track.fault = f"another track was chosen, {chosen.source}"
            continue
        result = found[id(track)] = spoken_lines(
            track.events, start_seconds=track.start_seconds, film_seconds=film_seconds, language=track.language
        )
        track.fault = _refused(result)
        chosen = track if track.fault is None else None
    rows = [_row(track, found.get(id(track)), is_chosen=track is chosen) for track in tracks]
    return rows, found[id(chosen)].lines if chosen else []


def _is_without_dialogue(track: Track) -> bool:
    title = track.title or ""
    flagged = track.flags & (Disposition.forced | Disposition.karaoke | Disposition.lyrics | Disposition.comment)
    return bool(flagged or _NO_DIALOGUE.search(title)) and not _WHOLE.search(title)


def _rank(track: Track, language: str | None) -> tuple[int, bool, bool, bool]:
    """Return the order of a track: language, speech without notes for the deaf, files of the user, the default."""
    other = 0 if track.language == language else 1 if track.language is None else 2
    deaf = bool(track.flags & Disposition.hearing_impaired or _FOR_THE_DEAF.search(track.title or ""))
    return (other if language else 0), deaf, not track.is_beside, not track.flags & Disposition.default


def _refused(found: Found) -> str | None:
    beyond = found.left_out["beyond the end"]
    if beyond > ELSEWHERE_SHARE * (beyond + len(found.lines)):
        return f"subtitles of another film: {beyond:,} of {beyond + len(found.lines):,} lines begin beyond the end"
    return None if found.lines else "no dialogue in it"


def _row(track: Track, found: Found | None, *, is_chosen: bool) -> SubtitleTrack:
    counts = dict(found.left_out) if found else {}
    if track.unreadable and found:
        counts["unreadable"] = track.unreadable
    remark = track.fault
    if is_chosen and found and not found.by_position:
        remark = "most lines have a position, so signs are found by style alone"
    return SubtitleTrack(
        source=track.source,
        codec=track.codec,
        language=track.language,
        title=track.title,
        chosen=is_chosen,
        remark=remark,
        lines=len(found.lines) if found else None,
        left_out=tuple(LeftOut(rule=rule, events=count) for rule, count in sorted(counts.items())),
    )


def _beside(file: SubtitleFile, path: Path) -> Track:
    """Read a file beside the film; the parts between name and suffix are its language and title."""
    *parts, codec = file.ending.strip(".").split(".")
    language, title = _language_and_title(parts)
    track = Track(file.ending, codec.lower(), language, title, Disposition(0), is_beside=True)
    try:
        track.events, track.unreadable = read_events(path, language)
    except (SubtitleError, OSError) as error:
        track.fault = f"cannot be read: {error}"
    return track


def _language_and_title(parts: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the language that one of the parts names, and the others: in `film.en.hi.srt`, `hi` is no language."""
    codes = [language_of_word(part) for part in parts]
    place = next((place for place, code in enumerate(codes) if code), len(parts))
    language = codes[place] if place < len(parts) else None
    return language, " ".join([*parts[:place], *parts[place + 1 :]]) or None


def _inside(container: InputContainer, film: Film, progress: Progress) -> list[Track]:
    """Read the subtitle streams of the container in one pass, without decoding pictures."""
    streams = list(container.streams.subtitles)
    tracks = {stream.index: _stream_track(stream) for stream in streams}
    readable = [stream for stream in streams if tracks[stream.index].fault is None]
    if readable:
        video = video_stream(container, film.film_id)
        shown = PacketTimes()
        for packet in demux(container, video, *readable):
            if packet.stream_index != video.index:
                tracks[packet.stream_index].events += _events(packet)
                continue
            shown.add(packet)
            if packet.pts is not None:
                progress(float(packet.pts * packet.time_base), film.duration_seconds)
        first_seconds = float(shown.ticks()[0] * video.time_base) if shown.count and video.time_base else 0.0
        for stream in readable:
            tracks[stream.index].start_seconds = first_seconds
    return list(tracks.values())


def _stream_track(stream: SubtitleStream) -> Track:
    codec = _codec(stream)
    title = stream.metadata.get("title") or stream.metadata.get("name")  # Matroska, MP4
    track = Track(f"stream {stream.index}", codec, language_of(stream.language), title, stream.disposition)
    if codec in PICTURES:
        track.fault = "pictures, which need text recognition"
    elif codec not in _SUBSTATION | _TIMED | {"mov_text"}:
        track.fault = "a codec that is not read"
    return track


def _codec(stream: SubtitleStream) -> str:
    return stream.codec_context.codec.canonical_name if stream.codec_context else "unknown"


def _events(packet: Packet[SubtitleStream]) -> Iterable[SSAEvent]:
    """Return the events of a packet; a packet of ASS is its fields without the times."""
    if not packet.size or packet.pts is None:
        return []
    start = round(float(packet.pts * packet.time_base) * 1000)
    end = start + round(float((packet.duration or 0) * packet.time_base) * 1000)
    codec = _codec(packet.stream)
    if codec in _TIMED:
        return [cue(bytes(packet).decode(errors="replace"), start, end)]
    if codec == "mov_text":  # length, text, and boxes of style; FFmpeg's decoder fails at all but UTF-8
        text = bytes(packet)[2 : 2 + int.from_bytes(bytes(packet)[:2])]
        encoding = "utf-16" if text.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)) else "utf-8"
        return [cue(text.decode(encoding, errors="replace"), start, end)] if text else []
    one = bytes(packet).decode(errors="replace").split(",", 8)
    if len(one) < 9:
        return []
    return [SSAEvent(start=start, end=end, style=one[2], name=one[3], effect=one[7], text=one[8].rstrip("\r\n"))]
