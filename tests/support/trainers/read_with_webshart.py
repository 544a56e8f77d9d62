"""Members of shards as webshart, SimpleTuner's tar reader, reads them. Run in its environment: SHARDS INDEX FOLDER."""

import sys
from pathlib import Path

import webshart

shards, index, folder = sys.argv[1:4]
webshart.MetadataExtractor().extract_metadata(source=shards, destination=index)
found = webshart.discover_dataset(shards, metadata=index)
for number in range(found.num_shards):
    reader = found.open_shard(number)
    for place, name in enumerate(reader.filenames()):
        Path(folder, name).write_bytes(bytes(reader.read_file(place)))
