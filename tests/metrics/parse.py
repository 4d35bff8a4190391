"""Reads an exposition from standard input with the parsers of prometheus_client and writes its samples
as JSON. The format is the argument: "text" (0.0.4) or "openmetrics". Any fault is an exception."""

import json
import sys

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client import parser as text

parse = {
    "text": text.text_string_to_metric_families,
    "openmetrics": openmetrics.text_string_to_metric_families,
}[sys.argv[1]]

samples = []
families = []
for family in parse(sys.stdin.buffer.read().decode("utf-8")):
    families.append({"name": family.name, "kind": family.type, "help": family.documentation})
    for sample in family.samples:
        samples.append(
            {"name": sample.name, "labels": dict(sample.labels), "value": float(sample.value)}
        )
json.dump({"families": families, "samples": samples}, sys.stdout)
