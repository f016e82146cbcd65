"""sparrowmq.spark.columns: texts, and rows that are made one by one."""

import numpy as np
import pyarrow as pa

from sparrowmq.spark.columns import overwrite, text


def test_bytes_that_are_not_utf8_are_replaced_as_java_does():
    assert text(pa.array([b"caf\xc3\xa9", None, b"\xff!"])).to_pylist() == ["café", None, "�!"]


def test_rows_are_overwritten_in_place():
    values = pa.array(["a", None, "c"])
    assert overwrite(values, np.array([0, 1]), iter(["x", "yy"])).to_pylist() == ["x", "yy", "c"]
    assert overwrite(values, np.array([], np.int64), iter([])) is values
