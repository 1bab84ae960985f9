from tests.traces import kernel, launch, op, trace_of


def test_links():
    t = trace_of(op("aten::mm", 0, 10), launch(2, 3, corr=1), kernel("sgemm", 6, 20, corr=1))
    assert list(t.launch) == [-1, -1, 1]
    assert list(t.parent) == [-1, 0, -1]
    assert list(t.op) == [-1, 0, 0]
