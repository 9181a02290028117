"""Least squares and predictions, from the normal equations, in exact arithmetic."""

from fractions import Fraction


def solve(a, b):
    """Solve a x = b by elimination."""
    n = len(b)
    rows = [[*row, value] for row, value in zip(a, b, strict=True)]
    for i in range(n):
        pivot = next(r for r in range(i, n) if rows[r][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [u - factor * v for u, v in zip(rows[r], rows[i], strict=True)]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def least_squares(xs, ys):
    """Return [b0, b1, ...] with the smallest sum of squared errors."""
    table = [[Fraction(1), *map(Fraction, x)] for x in xs]
    k = len(table[0])
    a = [[sum(row[i] * row[j] for row in table) for j in range(k)] for i in range(k)]
    b = [sum(row[i] * Fraction(y) for row, y in zip(table, ys, strict=True)) for i in range(k)]
    return [float(v) for v in solve(a, b)]


def predict(coefficients, x):
    return coefficients[0] + sum(b * v for b, v in zip(coefficients[1:], x, strict=True))
