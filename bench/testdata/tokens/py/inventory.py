"""Reconcile a warehouse count with what the ledger believes.

Usage:
    python inventory.py --ledger ledger.csv --count count.csv [--tolerance 0.02]
"""
from __future__ import annotations

import argparse
import csv
import logging
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Iterable, Iterator

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Line:
    sku: str
    location: str
    quantity: Decimal

    @classmethod
    def parse(cls, row: dict[str, str], number: int) -> "Line":
        try:
            quantity = Decimal(row["quantity"].replace(",", ""))
        except (KeyError, InvalidOperation) as exc:
            raise ValueError(f"line {number}: bad quantity {row.get('quantity')!r}") from exc
        sku = row["sku"].strip().upper()
        if not sku:
            raise ValueError(f"line {number}: empty SKU")
        return cls(sku=sku, location=row.get("location", "").strip() or "UNKNOWN", quantity=quantity)


@dataclass
class Difference:
    sku: str
    expected: Decimal
    counted: Decimal
    locations: list[str] = field(default_factory=list)

    @property
    def delta(self) -> Decimal:
        return self.counted - self.expected

    @property
    def ratio(self) -> float:
        if self.expected == 0:
            return float("inf") if self.counted else 0.0
        return float(abs(self.delta) / self.expected)

    def __str__(self) -> str:
        sign = "+" if self.delta > 0 else ""
        return f"{self.sku:<16} {self.expected:>10} {self.counted:>10} {sign}{self.delta:>9} {', '.join(self.locations)}"


def read(path: Path) -> Iterator[Line]:
    with path.open(newline="", encoding="utf-8-sig") as handle:
        reader = csv.DictReader(handle)
        missing = {"sku", "quantity"} - set(reader.fieldnames or [])
        if missing:
            raise SystemExit(f"{path}: missing columns: {', '.join(sorted(missing))}")
        for number, row in enumerate(reader, start=2):
            try:
                yield Line.parse(row, number)
            except ValueError as exc:
                log.warning("%s: %s", path.name, exc)


def totals(lines: Iterable[Line]) -> tuple[dict[str, Decimal], dict[str, set[str]]]:
    sums: dict[str, Decimal] = defaultdict(Decimal)
    places: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        sums[line.sku] += line.quantity
        places[line.sku].add(line.location)
    return sums, places


def compare(ledger: Iterable[Line], count: Iterable[Line], tolerance: float) -> list[Difference]:
    expected, _ = totals(ledger)
    counted, places = totals(count)
    result = []
    for sku in sorted(expected.keys() | counted.keys()):
        diff = Difference(sku, expected.get(sku, Decimal(0)), counted.get(sku, Decimal(0)), sorted(places.get(sku, ())))
        if diff.ratio > tolerance:
            result.append(diff)
    return sorted(result, key=lambda d: (-d.ratio, d.sku))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--count", type=Path, required=True)
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("-v", "--verbose", action="count", default=0)
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING - 10 * args.verbose, format="%(levelname)s: %(message)s")

    differences = compare(read(args.ledger), read(args.count), args.tolerance)
    if not differences:
        print("No differences above tolerance.")
        return 0
    print(f"{'SKU':<16} {'expected':>10} {'counted':>10} {'delta':>10} locations")
    print("-" * 72)
    for diff in differences:
        print(diff)
    return 1


if __name__ == "__main__":
    sys.exit(main())
