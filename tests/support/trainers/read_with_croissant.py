"""Rows of a record set as mlcroissant reads them, after its checks. Run in its environment: CROISSANT_JSON SET."""

import json
import sys

import mlcroissant

described = mlcroissant.Dataset(jsonld=sys.argv[1])
assert not described.metadata.issues.errors, described.metadata.issues.report()
rows = [
    {key.partition("/")[2]: value.decode() if isinstance(value, bytes) else value for key, value in row.items()}
    for row in described.records(sys.argv[2])
]
print(json.dumps(rows))
