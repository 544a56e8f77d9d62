"""Published data: samples, shards, their verification, and the coverage of the films."""
